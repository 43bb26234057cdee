// SPDX-License-Identifier: BSD-3-Clause
#include "openvc/numeric_option_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "api/validate.hpp"
#include "openvc/budget.hpp"
#include "openvc/option_text.hpp"
#include "unit/api/option_values.hpp"

namespace openvc::api {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(NumericOptionList, EveryFieldHasOneDocumentedRow) {
  std::set<std::string> names;
  std::set<const void*> fields;
  const NumericOptions options;
  for_each_numeric_option([&](const auto& option) {
    names.insert(option.name);
    fields.insert(&(options.*option.field));
    EXPECT_THAT(option.documentation, testing::EndsWith(".")) << option.name;
    EXPECT_TRUE(is_allowed(option, option.default_value())) << option.name;
    EXPECT_THAT(expected_values(option), testing::Not(testing::IsEmpty()));
  });
  constexpr std::size_t kRows = std::tuple_size_v<decltype(kNumericOptions)>;
  EXPECT_EQ(names.size(), kRows);
  EXPECT_EQ(fields.size(), kRows);
}

TEST(Budgets, BalancedIsTheDefaultAndTheOthersLeaveMoreOrLessError) {
  const NumericOptions fast = numeric_options(Budget::fast);
  const NumericOptions balanced = numeric_options(Budget::balanced);
  const NumericOptions best = numeric_options(Budget::best);
  for_each_numeric_option([&](const auto& option) {
    EXPECT_EQ(balanced.*option.field, option.default_value()) << option.name;
    for (const NumericOptions& options : {fast, best}) {
      EXPECT_TRUE(is_allowed(option, options.*option.field)) << option.name;
    }
  });
  EXPECT_GT(fast.score_error_target, balanced.score_error_target);
  EXPECT_LT(best.score_error_target, balanced.score_error_target);
  EXPECT_GE(best.max_extra_steps, balanced.max_extra_steps);
}

TEST(NumericOptionList, GoodValuesAreAccepted) {
  for_each_numeric_option([](const auto& option) {
    for (const auto value : test::good_values(option)) {
      AttentionOptions options;
      options.numerics.*option.field = value;
      EXPECT_FALSE(validate_options(options)) << option.name << " " << value_text(value);
    }
  });
}

TEST(NumericOptionList, BadValuesAreRefusedByName) {
  for_each_numeric_option([](const auto& option) {
    for (const auto value : test::bad_values(option)) {
      AttentionOptions options;
      options.numerics.*option.field = value;
      const MaybeRefusal refusal = validate_options(options);
      ASSERT_TRUE(refusal) << option.name << " " << value_text(value);
      EXPECT_EQ(refusal->code, ErrorCode::invalid_value);
      EXPECT_THAT(refusal->message, AllOf(HasSubstr(option.name + (": " + value_text(value))),
                                          HasSubstr(expected_values(option, true)),
                                          HasSubstr(value_text(option.default_value()))));
    }
  });
}

TEST(OptionText, SaysWhatIsExpected) {
  EXPECT_EQ(expected_enumerators<Choice>(false), "never, automatic or always");
  EXPECT_EQ(expected_enumerators<ValueScale>(true), "per_channel (0) or per_head (1)");
  static constexpr int kOne[] = {7};
  using Int = NumericOption<int>;
  EXPECT_EQ(
      expected_values(Int{.name = "", .field = nullptr, .allowed = {kOne}, .documentation = ""}),
      "7");
  using Float = NumericOption<float>;
  const auto range = [](AllowedValues<float> allowed) {
    return expected_values(
        Float{.name = "", .field = nullptr, .allowed = allowed, .documentation = ""});
  };
  EXPECT_EQ(range({}), "a finite number (single precision)");
  EXPECT_EQ(range({.least = 0.0f}), "a finite number >= 0 (single precision)");
  EXPECT_EQ(range({.most = 2.5f}), "a finite number <= 2.5 (single precision)");
  EXPECT_EQ(range({.least = 0.1f, .most = 1.0f}),
            "a finite number >= 0.1 and <= 1 (single precision)");
}

TEST(OptionText, NamesAndEnumeratorsCorrespond) {
  EXPECT_EQ(value_text(Choice::automatic), "automatic");
  EXPECT_EQ(value_text(ValueScale::per_head), "per_head");
  EXPECT_EQ(value_text(Mask::causal), "causal");
  EXPECT_EQ(value_text(KeyOrder::descending), "descending");
  EXPECT_EQ(value_text(static_cast<Choice>(9)), "9");
  for (const char* name : names_of(Choice{})) {
    EXPECT_EQ(value_text(*enumerator_named<Choice>(name)), name);
  }
  EXPECT_FALSE(enumerator_named<Choice>("Never"));
  EXPECT_FALSE(enumerator_named<Choice>(""));
}

}  // namespace
}  // namespace openvc::api
