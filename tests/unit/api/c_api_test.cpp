// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "openvc/attention.hpp"
#include "openvc/budget.hpp"
#include "openvc/info.hpp"
#include "openvc/openvc.h"
#include "openvc/version.hpp"
#include "unit/api/c_api_compile.h"
#include "unit/cpu/test_tensor.hpp"

namespace openvc {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kQueries = 70;
constexpr std::int64_t kKeys = 200;
constexpr std::int64_t kHeads = 2;

std::vector<float> normal(std::int64_t sequence, std::uint64_t seed) {
  test::Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(sequence * kHeads * 128));
  for (float& value : values) value = random.normal();
  return values;
}

class CInterface : public testing::Test {
 protected:
  void SetUp() override {
    openvc_test_fill_tensor(&q, q_values.data(), kQueries, kHeads);
    openvc_test_fill_tensor(&k, k_values.data(), kKeys, kHeads);
    openvc_test_fill_tensor(&v, v_values.data(), kKeys, kHeads);
    openvc_test_fill_tensor(&out, out_values.data(), kQueries, kHeads);
    ASSERT_EQ(openvc_options_default(&options, sizeof(options)), OPENVC_OK);
  }

  static TensorView view(const openvc_tensor& tensor) {
    TensorView result;
    result.data = tensor.data;
    result.type = ElementType::float32;
    std::copy_n(tensor.shape, 4, result.shape.begin());
    std::copy_n(tensor.strides, 4, result.strides.begin());
    return result;
  }

  std::vector<float> q_values = normal(kQueries, 1);
  std::vector<float> k_values = normal(kKeys, 2);
  std::vector<float> v_values = normal(kKeys, 3);
  std::vector<float> out_values = std::vector<float>(q_values.size(), -1.0f);
  openvc_tensor q;
  openvc_tensor k;
  openvc_tensor v;
  openvc_tensor out;
  openvc_options options;
};

TEST_F(CInterface, AttentionEqualsTheCppInterface) {
  std::vector<float> logs(kHeads * kQueries);
  ASSERT_EQ(openvc_test_attention(&q, &k, &v, &out, logs.data()), OPENVC_OK)
      << openvc_last_error_message();
  std::vector<float> expected(out_values.size());
  std::vector<float> expected_logs(logs.size());
  attention(view(q), view(k), view(v),
            {expected.data(), ElementType::float32, {}, view(out).shape, view(out).strides},
            expected_logs.data());
  EXPECT_EQ(out_values, expected);
  EXPECT_EQ(logs, expected_logs);
}

TEST_F(CInterface, PackedSequencesAreCallsOfTheirOwn) {
  const std::int32_t boundaries_q[] = {0, 5, kQueries};
  const std::int32_t boundaries_k[] = {0, 150, kKeys};
  std::vector<float> logs(kHeads * kQueries);
  std::vector<float> expected_logs(5 * kHeads);
  openvc_tensor one_q = q;
  openvc_tensor one_k = k;
  openvc_tensor one_v = v;
  openvc_tensor one_out = out;
  one_q.shape[1] = one_out.shape[1] = 5;
  one_k.shape[1] = one_v.shape[1] = 150;
  ASSERT_EQ(openvc_attention(&one_q, &one_k, &one_v, &one_out, expected_logs.data(), nullptr),
            OPENVC_OK);
  const auto first_rows = [&] {
    return std::vector<float>(out_values.begin(), out_values.begin() + 5 * out.strides[1]);
  };
  const std::vector<float> expected = first_rows();
  std::fill(out_values.begin(), out_values.end(), 7.0f);
  options.sequences = 2;
  options.cu_seqlens_q = boundaries_q;
  options.cu_seqlens_k = boundaries_k;
  options.max_seqlen_q = kQueries;
  options.max_seqlen_k = 150;
  ASSERT_EQ(openvc_attention(&q, &k, &v, &out, logs.data(), &options), OPENVC_OK)
      << openvc_last_error_message();
  EXPECT_EQ(first_rows(), expected);
  EXPECT_EQ(logs[kQueries + 4], expected_logs[5 + 4]);  // query 4 of head 1
  EXPECT_THAT(out_values, testing::Not(testing::Contains(7.0f)));
  openvc_prepared* prepared = nullptr;
  EXPECT_EQ(openvc_prepare(&q, &k, &v, 0, &options, &prepared), OPENVC_UNSUPPORTED);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("sequences: 2 packed ones"));
  options.cu_seqlens_k = nullptr;
  EXPECT_EQ(openvc_attention(&q, &k, &v, &out, nullptr, &options), OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("cu_seqlens_k: pointer is null"));
}

TEST_F(CInterface, SelectedKeysAreThoseOfAShorterTensor) {
  const std::int32_t length = 150;
  std::vector<std::uint8_t> mask(2 * kKeys, 0);
  for (std::int64_t key = 0; key < 150; ++key) mask[static_cast<std::size_t>(2 * key)] = 1;
  openvc_tensor short_k = k;
  openvc_tensor short_v = v;
  short_k.shape[1] = short_v.shape[1] = 150;
  ASSERT_EQ(openvc_attention(&q, &short_k, &short_v, &out, nullptr, nullptr), OPENVC_OK);
  const std::vector<float> expected = out_values;
  options.key_lengths = &length;
  ASSERT_EQ(openvc_attention(&q, &k, &v, &out, nullptr, &options), OPENVC_OK);
  EXPECT_EQ(out_values, expected);
  options.key_lengths = nullptr;
  options.key_mask = mask.data();
  options.key_mask_key_stride = 2;
  ASSERT_EQ(openvc_attention(&q, &k, &v, &out, nullptr, &options), OPENVC_OK);
  EXPECT_EQ(out_values, expected);
  std::int64_t row = 0;
  std::vector<double> exact(kHeads * 128);
  EXPECT_EQ(openvc_exact_attention(&q, &k, &v, &row, 1, exact.data(), nullptr, &options),
            OPENVC_UNSUPPORTED);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("key_mask: selects keys"));
  options.key_mask = reinterpret_cast<const std::uint8_t*>(out_values.data());
  EXPECT_EQ(openvc_attention(&q, &k, &v, &out, nullptr, &options), OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("out: memory overlaps key_mask"));
  std::vector<float> logs(kHeads * kQueries + 1);
  options.key_mask = reinterpret_cast<const std::uint8_t*>(&logs[kHeads * kQueries]);
  options.key_mask_key_stride = -1;  // its last keys lie in the logarithms
  EXPECT_EQ(openvc_attention(&q, &k, &v, &out, logs.data(), &options), OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("log_sum_exp: memory overlaps key_mask"));
  options.key_lengths = reinterpret_cast<const std::int32_t*>(logs.data());
  EXPECT_EQ(openvc_attention(&q, &k, &v, &out, logs.data(), &options), OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("log_sum_exp: memory overlaps key_lengths"));
  options.key_lengths = reinterpret_cast<const std::int32_t*>(&out_values.back());
  EXPECT_EQ(openvc_attention(&q, &k, &v, &out, logs.data(), &options), OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("out: memory overlaps key_lengths"));
  options.key_lengths = nullptr;
  options.key_mask_key_stride = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(openvc_attention(&q, &k, &v, &out, nullptr, &options), OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("a key span more than 2^63 bytes"));
  options.mask = OPENVC_MASK_CAUSAL;
  EXPECT_EQ(openvc_is_supported(&q, &k, &v, &options), OPENVC_UNSUPPORTED);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("key_mask: together with a causal mask"));
}

TEST_F(CInterface, RepairedAttention) {
  ASSERT_EQ(openvc_test_repaired_attention(&q, &k, &v, 0.0, &out), OPENVC_OK);
  const std::vector<float> plain = out_values;
  ASSERT_EQ(openvc_test_repaired_attention(&q, &k, &v, 0.5, &out), OPENVC_OK);
  EXPECT_NE(out_values, plain);
  EXPECT_EQ(openvc_test_repaired_attention(&q, &k, &v, -0.5, &out), OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("budget: -0.5"));
}

TEST_F(CInterface, PreparedAccessors) {
  openvc_prepared* prepared = nullptr;
  ASSERT_EQ(openvc_prepare_repair(&q, &k, &v, 0.1, 1, nullptr, &prepared), OPENVC_OK);
  std::int64_t shape[4];
  openvc_prepared_query_shape(prepared, shape);
  EXPECT_THAT(shape, testing::ElementsAre(1, kQueries, kHeads, 128));
  openvc_prepared_key_shape(prepared, shape);
  EXPECT_THAT(shape, testing::ElementsAre(1, kKeys, kHeads, 128));
  EXPECT_EQ(openvc_prepared_element_type(prepared), OPENVC_FLOAT32);
  std::int32_t index = -1;
  EXPECT_EQ(openvc_prepared_device(prepared, &index), OPENVC_CPU);
  EXPECT_EQ(index, 0);
  EXPECT_EQ(openvc_prepared_device(prepared, nullptr), OPENVC_CPU);
  EXPECT_EQ(openvc_prepared_repair_rows(prepared), 20);
  EXPECT_EQ(openvc_prepared_has_log_sum_exp(prepared), 1);
  EXPECT_GT(openvc_prepared_bytes(prepared), 0u);
  openvc_head_plan plans[3];
  plans[1].score_exponent = -7;
  std::size_t count = 0;
  ASSERT_EQ(openvc_prepared_plans(prepared, plans, 1, &count), OPENVC_OK);
  EXPECT_EQ(count, 2u);
  EXPECT_GT(plans[0].predicted_score_error, 0.0f);
  EXPECT_EQ(plans[1].score_exponent, -7) << "beyond the capacity";
  EXPECT_EQ(openvc_prepared_plans(prepared, nullptr, 0, &count), OPENVC_OK);
  EXPECT_EQ(openvc_prepared_plans(prepared, plans, 2, nullptr), OPENVC_OK);
  EXPECT_EQ(openvc_prepared_plans(prepared, nullptr, 1, &count), OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("plans: pointer is null with capacity 1"));
  EXPECT_EQ(openvc_prepared_query_shape(prepared, nullptr), OPENVC_INVALID_VALUE);
  EXPECT_EQ(openvc_prepared_key_shape(prepared, nullptr), OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("shape: pointer is null"));
  openvc_prepared_destroy(prepared);
  openvc_prepared_destroy(nullptr);
}

TEST_F(CInterface, AccessorsOfNullSayWhatIsWrong) {
  std::int64_t shape[4] = {5, 6, 7, 8};
  std::int32_t index = 42;
  std::size_t count = 43;
  const std::function<bool()> accessors[] = {
      [&] { return openvc_prepared_query_shape(nullptr, shape) == OPENVC_INVALID_VALUE; },
      [&] { return openvc_prepared_key_shape(nullptr, shape) == OPENVC_INVALID_VALUE; },
      [&] { return openvc_prepared_query_shape(nullptr, nullptr) == OPENVC_INVALID_VALUE; },
      [&] { return openvc_prepared_element_type(nullptr) == -1; },
      [&] { return openvc_prepared_device(nullptr, &index) == -1; },
      [&] { return openvc_prepared_device(nullptr, nullptr) == -1; },
      [&] { return openvc_prepared_repair_rows(nullptr) == -1; },
      [&] { return openvc_prepared_has_log_sum_exp(nullptr) == -1; },
      [&] { return openvc_prepared_bytes(nullptr) == 0; },
      [&] { return openvc_prepared_plans(nullptr, nullptr, 0, &count) == OPENVC_INVALID_VALUE; },
  };
  for (const auto& accessor : accessors) {
    EXPECT_EQ(openvc_options_default(nullptr, 0), OPENVC_INVALID_VALUE);  // another message
    EXPECT_TRUE(accessor()) << &accessor - accessors;
    EXPECT_THAT(openvc_last_error_message(), HasSubstr("prepared: pointer is null"));
  }
  EXPECT_THAT(shape, testing::ElementsAre(5, 6, 7, 8)) << "nothing is written";
  EXPECT_EQ(index, 42);
  EXPECT_EQ(count, 43u);
}

TEST_F(CInterface, NullPointersAreRefused) {
  openvc_prepared* prepared = nullptr;
  EXPECT_EQ(openvc_attention(nullptr, &k, &v, &out, nullptr, nullptr), OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("q: pointer to the tensor is null"));
  EXPECT_EQ(openvc_attention(&q, &k, &v, nullptr, nullptr, nullptr), OPENVC_INVALID_VALUE);
  EXPECT_EQ(openvc_prepare(&q, &k, &v, 0, nullptr, nullptr), OPENVC_INVALID_VALUE);
  EXPECT_EQ(openvc_prepare(&q, &k, &v, 2, nullptr, &prepared), OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("with_log_sum_exp: 2"));
  EXPECT_EQ(openvc_attention_prepared(nullptr, &out, nullptr, nullptr), OPENVC_INVALID_VALUE);
  EXPECT_EQ(openvc_prepared_plans(nullptr, nullptr, 0, nullptr), OPENVC_INVALID_VALUE);
  EXPECT_EQ(openvc_options_default(nullptr, sizeof(openvc_options)), OPENVC_INVALID_VALUE);
  EXPECT_EQ(openvc_exact_attention(&q, &k, &v, nullptr, 1, nullptr, nullptr, nullptr),
            OPENVC_INVALID_VALUE);
}

TEST_F(CInterface, EveryNullTensorIsRefusedByEveryFunction) {
  std::vector<double> exact(q_values.size());
  const std::int64_t row = 0;
  openvc_prepared* prepared = nullptr;
  const char* const names[] = {"q", "k", "v"};
  for (int missing = 0; missing < 3; ++missing) {
    const openvc_tensor* t[] = {&q, &k, &v};
    t[missing] = nullptr;
    const openvc_status statuses[] = {
        openvc_attention(t[0], t[1], t[2], &out, nullptr, nullptr),
        openvc_is_supported(t[0], t[1], t[2], nullptr),
        openvc_prepare(t[0], t[1], t[2], 0, nullptr, &prepared),
        openvc_prepare_repair(t[0], t[1], t[2], 0.1, 0, nullptr, &prepared),
        openvc_exact_attention(t[0], t[1], t[2], &row, 1, exact.data(), nullptr, nullptr),
    };
    EXPECT_THAT(statuses, testing::Each(OPENVC_INVALID_VALUE));
    EXPECT_EQ(prepared, nullptr);
    EXPECT_THAT(openvc_last_error_message(),
                HasSubstr(names[missing] + std::string(": pointer to the tensor is null")));
  }
  EXPECT_EQ(openvc_exact_attention(&q, &k, &v, &row, 1, nullptr, nullptr, nullptr),
            OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("out: pointer is null"));
}

TEST_F(CInterface, FieldsOfTensorsAreChecked) {
  using Fault = std::function<void(openvc_tensor&)>;
  const std::pair<const char*, Fault> faults[] = {
      {"reserved: 1; expected 0", [](openvc_tensor& t) { t.reserved = 1; }},
      {"reserved: -2147483648", [](openvc_tensor& t) { t.reserved = INT32_MIN; }},
      {"element_type: -1 is unknown", [](openvc_tensor& t) { t.element_type = -1; }},
      {"element type 3 is unknown", [](openvc_tensor& t) { t.element_type = 3; }},
      {"element_type: 256 is unknown", [](openvc_tensor& t) { t.element_type = 256; }},
      {"device_type: -1 is unknown", [](openvc_tensor& t) { t.device_type = -1; }},
      {"device type 2", [](openvc_tensor& t) { t.device_type = 2; }},
      {"device_type: 256 is unknown", [](openvc_tensor& t) { t.device_type = 256; }},
      {"index -1", [](openvc_tensor& t) { t.device_type = OPENVC_CUDA, t.device_index = -1; }},
      {"data pointer is null", [](openvc_tensor& t) { t.data = nullptr; }},
      {"axis of size 0", [](openvc_tensor& t) { t.shape[1] = 0; }},
      {"axis of size -1", [](openvc_tensor& t) { t.shape[0] = -1; }},
      {"channel stride 2", [](openvc_tensor& t) { t.strides[3] = 2; }},
      {"spans more than 2^63", [](openvc_tensor& t) { t.strides[1] = INT64_MIN; }},
  };
  openvc_prepared* prepared = nullptr;
  const std::int64_t row = 0;
  std::vector<double> exact(q_values.size());
  for (const auto& [words, fault] : faults) {
    for (openvc_tensor* tensor : {&q, &k, &v, &out}) {
      const openvc_tensor good = *tensor;
      fault(*tensor);
      EXPECT_NE(openvc_attention(&q, &k, &v, &out, nullptr, nullptr), OPENVC_OK) << words;
      // The output is compared with the shape of q before its axes are looked at.
      const bool compared = tensor == &out && std::string_view(words).starts_with("axis");
      EXPECT_THAT(openvc_last_error_message(), HasSubstr(compared ? "expected q's shape" : words));
      if (tensor != &out) {
        // The query answers from shapes, types, device and strides; it asks for no memory.
        const bool asks_for_memory = std::string_view(words) == "data pointer is null";
        EXPECT_EQ(openvc_is_supported(&q, &k, &v, nullptr) == OPENVC_OK, asks_for_memory) << words;
        EXPECT_NE(openvc_prepare(&q, &k, &v, 0, nullptr, &prepared), OPENVC_OK) << words;
        EXPECT_NE(openvc_exact_attention(&q, &k, &v, &row, 1, exact.data(), nullptr, nullptr),
                  OPENVC_OK);
        EXPECT_THAT(openvc_last_error_message(), HasSubstr(words));
      }
      *tensor = good;
    }
  }
}

TEST_F(CInterface, EveryFunctionChecksEveryOption) {
  openvc_prepared* made = nullptr;
  ASSERT_EQ(openvc_prepare(&q, &k, &v, 0, nullptr, &made), OPENVC_OK);
  const std::int64_t row = 0;
  std::vector<double> exact(q_values.size());
  using Fault = std::function<void(openvc_options&)>;
  const float nan = std::nanf("");
  const std::pair<const char*, Fault> faults[] = {
      {"mask: 2", [](openvc_options& o) { o.mask = 2; }},
      {"mask: -1", [](openvc_options& o) { o.mask = -1; }},
      {"mask: 256", [](openvc_options& o) { o.mask = 256; }},
      {"key_order: 2", [](openvc_options& o) { o.key_order = 2; }},
      {"key_order: -1", [](openvc_options& o) { o.key_order = -1; }},
      {"softmax_scale: nan", [&](openvc_options& o) { o.softmax_scale = nan; }},
      {"softmax_scale: -1", [](openvc_options& o) { o.softmax_scale = -1.0f; }},
      {"expected 2^-126", [](openvc_options& o) { o.softmax_scale = 1e-40f; }},
      {"expected 2^-126", [](openvc_options& o) { o.softmax_scale = 1e38f; }},
      {"max_extra_steps: 3", [](openvc_options& o) { o.max_extra_steps = 3; }},
      {"threads: -1", [](openvc_options& o) { o.threads = -1; }},
      {"threads: 4097", [](openvc_options& o) { o.threads = 4097; }},
      {"options.reserved: 1; expected 0", [](openvc_options& o) { o.reserved = 1; }},
      {"options.reserved: -1", [](openvc_options& o) { o.reserved = -1; }},
      {"options.size: 0", [](openvc_options& o) { o.size = 0; }},
      {"newer openvc.h", [](openvc_options& o) { o.size = SIZE_MAX; }},
  };
  for (const auto& [words, fault] : faults) {
    openvc_options bad = options;
    fault(bad);
    openvc_prepared* prepared = made;
    const std::function<openvc_status()> calls[] = {
        [&] { return openvc_attention(&q, &k, &v, &out, nullptr, &bad); },
        [&] { return openvc_is_supported(&q, &k, &v, &bad); },
        [&] { return openvc_prepare(&q, &k, &v, 0, &bad, &prepared); },
        [&] { return openvc_prepare_repair(&q, &k, &v, 0.1, 0, &bad, &prepared); },
        [&] { return openvc_attention_prepared(made, &out, nullptr, &bad); },
        [&] { return openvc_exact_attention(&q, &k, &v, &row, 1, exact.data(), nullptr, &bad); },
    };
    for (const auto& call : calls) {
      EXPECT_EQ(call(), OPENVC_INVALID_VALUE) << words << ", call " << &call - calls;
      EXPECT_THAT(openvc_last_error_message(), HasSubstr(words));
    }
    EXPECT_EQ(prepared, nullptr) << "null after a failure";
  }
  openvc_prepared_destroy(made);
}

TEST_F(CInterface, StatusesFollowTheKindOfError) {
  k.element_type = OPENVC_FLOAT16;
  EXPECT_EQ(openvc_attention(&q, &k, &v, &out, nullptr, nullptr), OPENVC_INVALID_TYPE);
  k.element_type = 1 << 16;  // would wrap into a valid enumerator
  EXPECT_EQ(openvc_attention(&q, &k, &v, &out, nullptr, nullptr), OPENVC_INVALID_VALUE);
  k.element_type = OPENVC_FLOAT32;
  q.shape[3] = 68;
  EXPECT_EQ(openvc_is_supported(&q, &k, &v, nullptr), OPENVC_UNSUPPORTED);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("D = 68"));
}

TEST_F(CInterface, OptionsAreHonouredOrRefused) {
  const auto status = [&] { return openvc_attention(&q, &k, &v, &out, nullptr, &options); };
  const auto run = [&] {
    EXPECT_EQ(status(), OPENVC_OK) << openvc_last_error_message();
    return out_values;
  };
  for (float& value : v_values) value += 0.5f;  // a mean that is worth removing
  const std::vector<float> plain = run();
  options.softmax_scale = 0.2f;
  EXPECT_NE(run(), plain);
  options.softmax_scale = 0.0f;
  options.smooth_keys = 0;
  EXPECT_NE(run(), plain);
  options.smooth_keys = 1;
  options.smooth_values = 0;
  EXPECT_NE(run(), plain);
  options.smooth_values = 1;
  options.value_scale = OPENVC_VALUE_SCALE_PER_HEAD;
  EXPECT_NE(run(), plain);
  options.value_scale = OPENVC_VALUE_SCALE_PER_CHANNEL;
  options.score_error_target = 0.0f;
  options.max_extra_steps = 4;
  EXPECT_NE(run(), plain);
  ASSERT_EQ(openvc_options_default(&options, sizeof(options)), OPENVC_OK);
  EXPECT_EQ(run(), plain);

  options.smooth_keys = 2;
  EXPECT_EQ(status(), OPENVC_INVALID_VALUE);
  options.smooth_keys = 1;
  options.mask = 300;
  EXPECT_EQ(status(), OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("mask: 300"));
  options.mask = 7;
  EXPECT_EQ(status(), OPENVC_INVALID_VALUE);
}

TEST_F(CInterface, BudgetsSetTheNumericOptionsAndNothingElse) {
  options.mask = OPENVC_MASK_CAUSAL;
  options.softmax_scale = 0.25f;
  options.threads = 3;
  const openvc_options before = options;
  ASSERT_EQ(openvc_options_set_budget(&options, OPENVC_BUDGET_BEST), OPENVC_OK);
  const openvc::NumericOptions best = openvc::numeric_options(openvc::Budget::best);
  EXPECT_EQ(options.max_extra_steps, best.max_extra_steps);
  EXPECT_EQ(options.score_error_target, best.score_error_target);
  EXPECT_EQ(options.mask, before.mask);
  EXPECT_EQ(options.softmax_scale, before.softmax_scale);
  EXPECT_EQ(options.threads, before.threads);
  ASSERT_EQ(openvc_options_set_budget(&options, OPENVC_BUDGET_BALANCED), OPENVC_OK);
  EXPECT_EQ(std::memcmp(&options, &before, sizeof(options)), 0);

  for (const int budget : {-1, 3, 1000}) {
    EXPECT_EQ(openvc_options_set_budget(&options, budget), OPENVC_INVALID_VALUE) << budget;
    EXPECT_THAT(openvc_last_error_message(), HasSubstr("budget: " + std::to_string(budget)));
  }
  EXPECT_EQ(openvc_options_set_budget(nullptr, OPENVC_BUDGET_FAST), OPENVC_INVALID_VALUE);
  for (const std::size_t size : {offsetof(openvc_options, smooth_keys),
                                 offsetof(openvc_options, value_scale), sizeof(options) + 4}) {
    options.size = size;
    EXPECT_EQ(openvc_options_set_budget(&options, OPENVC_BUDGET_FAST), OPENVC_INVALID_VALUE);
    EXPECT_THAT(openvc_last_error_message(), HasSubstr("options.size: " + std::to_string(size)));
    EXPECT_EQ(
        std::memcmp(&options.mask, &before.mask, sizeof(options) - offsetof(openvc_options, mask)),
        0);
  }
}

TEST_F(CInterface, CallersWithAnOlderHeaderGetDefaults) {
  const std::size_t ends[] = {
      offsetof(openvc_options, mask),      offsetof(openvc_options, smooth_keys),
      offsetof(openvc_options, threads),   offsetof(openvc_options, reserved),
      offsetof(openvc_options, stream),    offsetof(openvc_options, key_lengths),
      offsetof(openvc_options, sequences), sizeof(openvc_options),
  };
  for (const std::size_t size : ends) {
    std::memset(&options, 0x7F, sizeof(options));
    ASSERT_EQ(openvc_options_default(&options, size), OPENVC_OK) << size;
    EXPECT_EQ(options.size, size);
    const auto* bytes = reinterpret_cast<const unsigned char*>(&options);
    EXPECT_THAT(std::vector(bytes + size, bytes + sizeof(options)), testing::Each(0x7F))
        << "beyond the caller's structure";
    EXPECT_EQ(openvc_attention(&q, &k, &v, &out, nullptr, &options), OPENVC_OK)
        << openvc_last_error_message();
  }
}

TEST_F(CInterface, SizesThatNoHeaderHasAreRefused) {
  const std::size_t stream = offsetof(openvc_options, stream);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, sizeof(std::size_t) - 1, sizeof(std::size_t) + 1,
        offsetof(openvc_options, mask) + 2, stream + 4, stream + 1, sizeof(options) - 1,
        sizeof(options) + 1, sizeof(options) + 8, SIZE_MAX}) {
    openvc_options untouched = options;
    EXPECT_EQ(openvc_options_default(&untouched, size), OPENVC_INVALID_VALUE) << size;
    EXPECT_THAT(openvc_last_error_message(), HasSubstr("size: " + std::to_string(size)));
    EXPECT_EQ(std::memcmp(&untouched, &options, sizeof(options)), 0);
    untouched.size = size;
    EXPECT_EQ(openvc_attention(&q, &k, &v, &out, nullptr, &untouched), OPENVC_INVALID_VALUE);
    EXPECT_THAT(openvc_last_error_message(), HasSubstr("options.size: " + std::to_string(size)));
  }
  options.size = sizeof(options) + 8;
  EXPECT_EQ(openvc_attention(&q, &k, &v, &out, nullptr, &options), OPENVC_INVALID_VALUE);
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("newer openvc.h"));
}

TEST_F(CInterface, ErrorMessagesBelongToTheirThread) {
  EXPECT_EQ(openvc_attention(nullptr, &k, &v, &out, nullptr, nullptr), OPENVC_INVALID_VALUE);
  std::string other = "unset";
  std::thread([&] { other = openvc_last_error_message(); }).join();
  EXPECT_EQ(other, "");
  EXPECT_THAT(openvc_last_error_message(), HasSubstr("q: pointer"));
}

TEST_F(CInterface, ExactAttentionEqualsTheCppInterface) {
  const std::int64_t rows[] = {3, 69};
  std::vector<double> c(2 * kHeads * 128);
  std::vector<double> cpp(c.size());
  options.softmax_scale = 0.1f;
  ASSERT_EQ(openvc_exact_attention(&q, &k, &v, rows, 2, c.data(), nullptr, &options), OPENVC_OK);
  exact_attention(view(q), view(k), view(v), rows, cpp.data(), nullptr, Mask::none, 0.1f);
  EXPECT_EQ(c, cpp);
}

TEST(CInterfaceInfo, FillsTheCallersBuffer) {
  const std::size_t needed = openvc_info_json(nullptr, 0);
  std::string text(needed, '#');
  EXPECT_EQ(openvc_info_json(text.data(), needed - 1), needed);
  EXPECT_EQ(text[0], '#') << "does not fit, not written";
  EXPECT_EQ(openvc_info_json(text.data(), text.size()), needed);
  EXPECT_STREQ(text.c_str(), info_json().c_str());
  EXPECT_STREQ(openvc_version(), kVersion);
}

}  // namespace
}  // namespace openvc
