// SPDX-License-Identifier: BSD-3-Clause
#include "api/c_convert.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "api/c_fields.hpp"
#include "openvc/numeric_option_list.hpp"
#include "openvc/option_text.hpp"
#include "openvc/status.hpp"
#include "unit/api/option_values.hpp"

namespace openvc::api {
namespace {

using testing::HasSubstr;

// What programs were compiled with: none of these ever changes.
static_assert(sizeof(openvc_tensor) == 88 && sizeof(openvc_head_plan) == 16);
static_assert(offsetof(openvc_tensor, element_type) == 8 && offsetof(openvc_tensor, shape) == 24 &&
              offsetof(openvc_tensor, reserved) == 20 && offsetof(openvc_tensor, strides) == 56);
static_assert(
    offsetof(openvc_options, mask) == 8 && offsetof(openvc_options, key_order) == 12 &&
    offsetof(openvc_options, softmax_scale) == 16 && offsetof(openvc_options, smooth_keys) == 20 &&
    offsetof(openvc_options, rotation) == 24 && offsetof(openvc_options, max_extra_steps) == 28 &&
    offsetof(openvc_options, score_error_target) == 32 &&
    offsetof(openvc_options, value_axes) == 36 && offsetof(openvc_options, smooth_values) == 40 &&
    offsetof(openvc_options, value_scale) == 44 && offsetof(openvc_options, threads) == 48 &&
    offsetof(openvc_options, reserved) == 52 && offsetof(openvc_options, stream) == 56 &&
    offsetof(openvc_options, key_lengths) == 64 && offsetof(openvc_options, key_mask) == 72 &&
    offsetof(openvc_options, key_mask_batch_stride) == 80 &&
    offsetof(openvc_options, key_mask_key_stride) == 88 &&
    offsetof(openvc_options, sequences) == 96 && offsetof(openvc_options, cu_seqlens_q) == 104 &&
    offsetof(openvc_options, cu_seqlens_k) == 112 &&
    offsetof(openvc_options, max_seqlen_q) == 120 && offsetof(openvc_options, max_seqlen_k) == 128);

openvc_options defaults() { return default_options(sizeof(openvc_options)); }

bool equal(const NumericOptions& a, const NumericOptions& b) {
  bool all = true;
  for_each_numeric_option(
      [&](const auto& option) { all = all && a.*option.field == b.*option.field; });
  return all;
}

/// Numbers that are no value of the option, among those that C can hold.
template <class Value, class Native>
std::vector<Native> bad_numbers(const NumericOption<Value>& option) {
  std::vector<Native> numbers;
  for (const Value value : test::bad_values(option)) numbers.push_back(static_cast<Native>(value));
  if constexpr (std::is_same_v<Value, bool> || std::is_enum_v<Value>) {
    using Limits = std::numeric_limits<Native>;
    numbers.insert(numbers.end(), {-1, 256, Limits::min(), Limits::max()});
  }
  if constexpr (std::is_same_v<Value, bool>) numbers.push_back(2);
  return numbers;
}

TEST(COptions, DefaultsAreThoseOfCpp) {
  const openvc_options options = defaults();
  EXPECT_TRUE(equal(to_options(&options).attention.numerics, {}));
  EXPECT_TRUE(equal(to_options(nullptr).attention.numerics, {}));
  for_each_numeric_field([&](const auto& option, auto field) {
    EXPECT_EQ(static_cast<decltype(option.default_value())>(options.*field),
              option.default_value());
  });
}

TEST(COptions, EveryGoodValueArrivesInItsFieldAlone) {
  for_each_numeric_field([]<class Native>(const auto& option, Native openvc_options::*field) {
    for (const auto value : test::good_values(option)) {
      openvc_options options = defaults();
      options.*field = static_cast<Native>(value);
      NumericOptions expected;
      expected.*option.field = value;
      EXPECT_TRUE(equal(to_options(&options).attention.numerics, expected))
          << option.name << " " << value_text(value);
    }
  });
}

TEST(COptions, EveryBadValueIsRefusedByName) {
  for_each_numeric_field([]<class Value, class Native>(const NumericOption<Value>& option,
                                                       Native openvc_options::*field) {
    const std::vector<Native> numbers = bad_numbers<Value, Native>(option);
    EXPECT_GE(numbers.size(), 3u) << option.name;
    for (const Native number : numbers) {
      openvc_options options = defaults();
      options.*field = number;
      try {
        (void)to_options(&options);
        ADD_FAILURE() << option.name << " took " << number;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_value);
        EXPECT_THAT(error.what(), HasSubstr(option.name + (": " + value_text(number))));
        EXPECT_THAT(error.what(), HasSubstr("expected"));
      }
    }
  });
}

}  // namespace
}  // namespace openvc::api
