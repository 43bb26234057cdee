// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/prepare.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "numerics/e4m3.hpp"
#include "unit/cpu/prepare_reference.hpp"
#include "unit/cpu/test_tensor.hpp"

namespace openvc::test {
namespace {

constexpr std::int64_t kD = numerics::kHeadDim;

/// Q, K and V with a mean, an outlier channel and an outlier token: what plans react to.
struct Inputs {
  Inputs(ElementType type, std::int64_t batch, std::int64_t heads, std::int64_t queries,
         std::int64_t keys, float scale = 1.0f)
      : q(type, {batch, queries, heads, kD}),
        k(type, {batch, keys, heads, kD}),
        v(type, {batch, keys, heads, kD}) {
    Random random(7);
    const auto value = [&](std::int64_t, std::int64_t s, std::int64_t h, std::int64_t c) {
      const float channel = c % 37 == 5 ? 6.0f : 1.0f;
      const float token = s % 61 == 17 ? 3.0f : 1.0f;
      return scale * (random.normal() * channel * token + 0.5f * static_cast<float>(h + 1));
    };
    q.fill(value);
    k.fill(value);
    v.fill(value);
  }

  [[nodiscard]] schedule::PrepareRequest request() const {
    schedule::PrepareRequest request;
    request.format = cpu::kPackedFormat;
    request.q = q.view();
    request.k = k.view();
    request.v = v.view();
    request.problem.batch = request.q.shape[kBatch];
    request.problem.heads = request.q.shape[kHead];
    request.problem.queries = request.q.shape[kSequence];
    request.problem.keys = request.k.shape[kSequence];
    request.softmax_scale = 0.08838834764831845f;
    return request;
  }

  TestTensor q;
  TestTensor k;
  TestTensor v;
};

void expect_equal(const schedule::PrepareRequest& request, const PreparedBytes& a,
                  const PreparedBytes& b) {
  EXPECT_EQ(first_difference(request, a, b), "");
  ASSERT_EQ(a.plans.size(), b.plans.size());
  for (std::size_t i = 0; i < a.plans.size(); ++i) {
    EXPECT_EQ(a.plans[i].extra_steps, b.plans[i].extra_steps) << i;
    EXPECT_EQ(a.plans[i].rotated, b.plans[i].rotated) << i;
    EXPECT_EQ(a.plans[i].score_exponent, b.plans[i].score_exponent) << i;
    EXPECT_EQ(a.plans[i].predicted_score_error, b.plans[i].predicted_score_error) << i;
  }
}

struct Case {
  std::string name;
  ElementType type = ElementType::bfloat16;
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t queries = 1;
  std::int64_t keys = 1;
  float scale = 1.0f;
  bool with_log_sum_exp = false;
  std::int64_t repair_rows = 0;
  NumericOptions numerics{};
};

NumericOptions rotate(Choice choice, int steps) {
  NumericOptions options;
  options.rotation = choice;
  options.max_extra_steps = steps;
  return options;
}

NumericOptions all_steps(int steps) {
  NumericOptions options;
  options.max_extra_steps = steps;
  options.score_error_target = 0.0f;
  return options;
}

NumericOptions on_axes(int steps) {
  NumericOptions options = all_steps(steps);
  options.rotation = Choice::always;
  return options;
}

NumericOptions plain() {
  NumericOptions options;
  options.smooth_keys = false;
  options.smooth_values = false;
  options.value_scale = ValueScale::per_head;
  options.max_extra_steps = 0;
  options.rotation = Choice::never;
  return options;
}

NumericOptions values_on_axes(NumericOptions options = {}) {
  options.value_axes = Choice::always;
  return options;
}

class PrepareEqualsReference : public testing::TestWithParam<Case> {};

TEST_P(PrepareEqualsReference, EveryByteOfEverySection) {
  const Case& c = GetParam();
  const Inputs inputs(c.type, c.batch, c.heads, c.queries, c.keys, c.scale);
  schedule::PrepareRequest request = inputs.request();
  request.numerics = c.numerics;
  request.with_log_sum_exp = c.with_log_sum_exp;
  request.problem.repair_rows = c.repair_rows;
  expect_equal(request, run_prepare(request), reference_prepare(request));
}

const Case kCases[] = {
    {"one_token"},
    {"one_query", ElementType::bfloat16, 1, 2, 1, 300, 1.0f, true},
    {"one_key", ElementType::float16, 1, 2, 300, 1, 1.0f, true},
    {"below_a_tile", ElementType::bfloat16, 2, 3, 77, 127},
    {"one_tile", ElementType::float16, 1, 2, 128, 128},
    {"beyond_a_tile", ElementType::bfloat16, 2, 2, 257, 129, 1.0f, true},
    {"two_levels_of_sums", ElementType::bfloat16, 1, 1, 130, 16'500},
    {"float32", ElementType::float32, 1, 2, 200, 333, 1.0f, true},
    {"float32_tiny", ElementType::float32, 1, 1, 130, 130, 1e-20f, true},
    {"large", ElementType::bfloat16, 1, 1, 130, 130, 1e8f},
    {"rotated", ElementType::bfloat16, 1, 2, 140, 270, 1.0f, true, 0, rotate(Choice::always, 0)},
    {"axes", ElementType::bfloat16, 1, 2, 140, 270, 1.0f, true, 0, rotate(Choice::always, 2)},
    {"axes_one_step", ElementType::float16, 2, 1, 129, 270, 1.0f, true, 0, on_axes(1)},
    {"axes_two_steps", ElementType::bfloat16, 1, 2, 140, 270, 1.0f, false, 0, on_axes(2)},
    {"axes_four_steps", ElementType::float32, 1, 2, 140, 3'000, 1.0f, true, 0, on_axes(4)},
    {"axes_of_few_tokens", ElementType::bfloat16, 1, 1, 3, 5, 1.0f, false, 0, on_axes(2)},
    {"axes_if_better", ElementType::bfloat16, 1, 1, 5'800, 5'800, 2.0f, false, 0,
     rotate(Choice::automatic, 1)},
    {"values_on_axes", ElementType::bfloat16, 1, 2, 140, 4'100, 1.0f, true, 0, values_on_axes()},
    {"all_on_axes", ElementType::float16, 2, 1, 129, 4'096, 1.0f, true, 0,
     values_on_axes(on_axes(2))},
    {"values_on_axes_uncentred", ElementType::float32, 1, 1, 140, 4'223, 1.0f, true, 0,
     values_on_axes(plain())},
    {"values_of_too_few_keys", ElementType::bfloat16, 1, 1, 3, 4'095, 1.0f, false, 0,
     values_on_axes()},
    {"values_with_repair", ElementType::bfloat16, 1, 1, 140, 4'100, 1.0f, false, 129,
     values_on_axes()},
    {"axes_and_repair", ElementType::bfloat16, 1, 1, 140, 400, 1.0f, false, 129, on_axes(2)},
    {"rotated_if_better", ElementType::bfloat16, 1, 2, 140, 270, 1.0f, true, 0,
     rotate(Choice::automatic, 0)},
    {"one_step", ElementType::float16, 1, 2, 140, 270, 1.0f, false, 0, all_steps(1)},
    {"two_steps", ElementType::bfloat16, 2, 2, 140, 270, 1.0f, false, 0, all_steps(2)},
    {"four_steps", ElementType::bfloat16, 1, 2, 140, 270, 1.0f, true, 0, all_steps(4)},
    {"plain", ElementType::bfloat16, 1, 2, 140, 270, 1.0f, true, 0, plain()},
    {"repair", ElementType::bfloat16, 2, 2, 140, 270, 1.0f, false, 5},
    {"repair_of_all_tokens", ElementType::float16, 1, 2, 140, 270, 1.0f, true, 270, all_steps(4)},
    {"repair_of_two_blocks", ElementType::bfloat16, 1, 1, 1, 400, 1.0f, false, 129, all_steps(2)},
};

INSTANTIATE_TEST_SUITE_P(, PrepareEqualsReference, testing::ValuesIn(kCases),
                         [](const auto& param) { return param.param.name; });

/// Low-rank Q and K: the axes hold all of it, so one step leaves nothing but residuals.
TEST(PrepareOnAxes, OneStepCoversSixteenDirections) {
  Random random(5);
  std::vector<float> mix(16 * kD);
  for (float& x : mix) x = random.normal();
  const auto low_rank = [&](TestTensor& tensor, std::int64_t tokens) {
    for (std::int64_t s = 0; s < tokens; ++s) {
      float z[16];
      for (float& x : z) x = random.normal();
      for (std::int64_t c = 0; c < kD; ++c) {
        float sum = 0.0f;
        for (std::int64_t i = 0; i < 16; ++i) {
          sum += z[i] * mix[static_cast<std::size_t>(i * kD + c)];
        }
        tensor.set(0, s, 0, c, sum);
      }
    }
  };
  Inputs inputs(ElementType::bfloat16, 1, 1, 300, 300);
  low_rank(inputs.q, 300);
  low_rank(inputs.k, 300);
  schedule::PrepareRequest request = inputs.request();
  request.numerics = all_steps(1);
  const float channels = run_prepare(request).plans[0].predicted_score_error;
  request.numerics.rotation = Choice::always;
  const PreparedBytes prepared = run_prepare(request);
  EXPECT_TRUE(prepared.plans[0].rotated);
  EXPECT_EQ(prepared.plans[0].extra_steps, 1);
  EXPECT_LT(prepared.plans[0].predicted_score_error, 0.05f * channels);
}

TEST(Prepare, WritesEveryByte) {
  const Inputs inputs(ElementType::bfloat16, 2, 2, 130, 140);
  schedule::PrepareRequest request = inputs.request();
  request.with_log_sum_exp = true;
  request.numerics.max_extra_steps = 4;
  request.problem.repair_rows = 3;
  expect_equal(request, run_prepare(request, 2, 0x00), run_prepare(request, 2, 0xFF));
}

TEST(Prepare, DoesNotDependOnTheNumberOfThreads) {
  const Inputs inputs(ElementType::bfloat16, 2, 5, 700, 900);
  schedule::PrepareRequest request = inputs.request();
  request.with_log_sum_exp = true;
  request.problem.repair_rows = 9;
  const PreparedBytes one = run_prepare(request, 1);
  for (const int threads : {2, 3, 8}) expect_equal(request, one, run_prepare(request, threads));
}

/// The same elements with other strides must give the same bytes; poison in the gaps must not show.
void expect_stride_independence(const Shape& shape, const Shape& strides) {
  const auto value = [&](std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t c) {
    // Elements that a stride of 0 shares get one value.
    return std::sin(static_cast<float>((strides[0] ? b : 0) * 31 + (strides[1] ? s : 0) * 7 +
                                       (strides[2] ? h : 0) * 3 + c));
  };
  const auto prepare_from = [&](const TestTensor& tensor) {
    schedule::PrepareRequest request = Inputs(ElementType::bfloat16, 1, 1, 1, 1).request();
    request.q = request.k = request.v = tensor.view();
    request.problem.batch = shape[kBatch];
    request.problem.heads = shape[kHead];
    request.problem.queries = request.problem.keys = shape[kSequence];
    request.with_log_sum_exp = true;
    const PreparedBytes bytes = run_prepare(request);
    EXPECT_TRUE(tensor.surroundings_untouched());
    return std::pair(request, bytes);
  };
  TestTensor strided(ElementType::bfloat16, shape, strides);
  TestTensor contiguous(ElementType::bfloat16, shape);
  const auto [request, a] = prepare_from(strided.fill(value));
  const auto [unused, b] = prepare_from(contiguous.fill(value));
  expect_equal(request, a, b);
}

TEST(PrepareStrides, HeadsBeforeSequence) {
  expect_stride_independence({2, 150, 3, kD}, {3 * 150 * kD, kD, 150 * kD, 1});
}

TEST(PrepareStrides, SliceOfAFusedProjection) {
  expect_stride_independence({2, 150, 3, kD}, {150 * 9 * kD, 9 * kD, kD, 1});
}

TEST(PrepareStrides, UnalignedRows) {
  expect_stride_independence({1, 150, 3, kD}, {150 * 391, 391, 130, 1});
}

TEST(PrepareStrides, ExpandedHeadsAndBatch) {
  expect_stride_independence({2, 150, 3, kD}, {0, kD, 0, 1});
}

TEST(PrepareStrides, ExpandedSequence) {
  expect_stride_independence({2, 150, 3, kD}, {3 * kD, 0, kD, 1});
}

TEST(PrepareStrides, Negative) {
  expect_stride_independence({2, 150, 3, kD}, {150 * 3 * kD, -3 * kD, -kD, 1});
}

TEST(PrepareStrides, StridesOfSingletonAxesAreIgnored) {
  constexpr std::int64_t kOdd = std::numeric_limits<std::int64_t>::max();
  expect_stride_independence({1, 150, 1, kD}, {kOdd, kD, -kOdd, 1});
}

std::vector<std::uint8_t> head_codes(const PreparedBytes& prepared, std::size_t section,
                                     std::int64_t head, std::int64_t rows_per_head,
                                     std::int64_t rows) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(prepared.bytes.data()) + section +
                      head * rows_per_head * kD;
  return {first, first + rows * kD};
}

class PrepareNonFinite : public testing::TestWithParam<float> {};

TEST_P(PrepareNonFinite, StaysInItsTensorAndHead) {
  Inputs clean(ElementType::bfloat16, 2, 2, 140, 140);
  const schedule::PrepareRequest request = clean.request();
  const PreparedBytes expected = run_prepare(request);
  constexpr std::int64_t kSick = 2;  // batch 1, head 0
  struct Place {
    TestTensor* tensor;
    std::size_t section;
    std::int64_t rows_per_head;
  };
  const schedule::Problem& problem = request.problem;
  const Place places[] = {
      {&clean.q, expected.layout.query_codes, expected.layout.query_rows},
      {&clean.k, expected.layout.key_codes, problem.padded_keys()},
  };
  for (const Place& place : places) {
    const float before = place.tensor->get(1, 77, 0, 5);
    place.tensor->set(1, 77, 0, 5, GetParam());
    const PreparedBytes sick = run_prepare(request);
    for (std::int64_t head = 0; head < 4; ++head) {
      const auto codes = head_codes(sick, place.section, head, place.rows_per_head, 140);
      if (head == kSick) {
        EXPECT_EQ(codes, std::vector<std::uint8_t>(codes.size(), numerics::kE4m3Nan));
      } else {
        EXPECT_EQ(codes, head_codes(expected, place.section, head, place.rows_per_head, 140));
      }
    }
    EXPECT_EQ(sick.plans[kSick].extra_steps, 0);
    place.tensor->set(1, 77, 0, 5, before);
  }

  clean.v.set(1, 77, 0, 5, GetParam());
  const PreparedBytes sick = run_prepare(request);
  const auto* scales = reinterpret_cast<const float*>(sick.bytes.data() + sick.layout.value_scales);
  const std::int64_t value_rows = problem.padded_key_blocks() * sick.layout.value_rows();
  for (std::int64_t head = 0; head < 4; ++head) {
    const auto codes = head_codes(sick, sick.layout.value_codes, head, value_rows, value_rows);
    if (head == kSick) {
      EXPECT_EQ(codes.front(), numerics::kE4m3Nan);
      // Neither padding slots nor rows of ones.
      EXPECT_EQ(std::count(codes.begin(), codes.end(), numerics::kE4m3Nan), 140 * kD);
      EXPECT_TRUE(std::isnan(scales[head * kD + 9]));
    } else {
      EXPECT_EQ(codes,
                head_codes(expected, expected.layout.value_codes, head, value_rows, value_rows));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, PrepareNonFinite,
                         testing::Values(std::numeric_limits<float>::quiet_NaN(),
                                         std::numeric_limits<float>::infinity(),
                                         -std::numeric_limits<float>::infinity()));

TEST(Prepare, ZerosGiveZeros) {
  Inputs inputs(ElementType::bfloat16, 1, 1, 130, 130);
  for (TestTensor* tensor : {&inputs.q, &inputs.k, &inputs.v}) {
    tensor->fill([](auto...) { return 0.0f; });
  }
  const schedule::PrepareRequest request = inputs.request();
  const PreparedBytes prepared = run_prepare(request);
  for (const Section& section : sections(request)) {
    for (std::size_t i = section.begin; i < section.end; ++i) {
      const auto row = (i - section.begin) / numerics::kKeyBlock %
                       static_cast<std::size_t>(prepared.layout.value_rows());
      if (section.name == "value_codes" && row >= kD) continue;  // a row of ones
      ASSERT_EQ(prepared.bytes[i], std::byte{0}) << section.name;
    }
  }
  EXPECT_EQ(prepared.plans[0].extra_steps, 0);
  EXPECT_EQ(prepared.plans[0].predicted_score_error, 0.0f);
}

/// Decoded Q and K rows must never give an accumulated score beyond binary16, whatever the input.
class PrepareExtremes : public testing::TestWithParam<std::tuple<float, float, float>> {};

TEST_P(PrepareExtremes, ScoresStayInsideBinary16) {
  const auto [query_scale, key_scale, softmax_scale] = GetParam();
  Inputs inputs(ElementType::float32, 1, 1, 130, 130);
  Random random(3);
  inputs.q.fill([&](auto...) { return query_scale * std::tanh(random.normal()); });
  inputs.k.fill([&](auto...) { return key_scale * std::tanh(random.normal()); });
  inputs.v.fill([&](auto...) { return key_scale * std::tanh(random.normal()); });
  for (const Choice rotation : {Choice::never, Choice::always}) {
    schedule::PrepareRequest request = inputs.request();
    request.softmax_scale = softmax_scale;
    request.numerics.rotation = rotation;
    request.numerics.smooth_keys = rotation == Choice::never;
    const PreparedBytes prepared = run_prepare(request);
    const auto q = head_codes(prepared, prepared.layout.query_codes, 0, 256, 130);
    const auto k = head_codes(prepared, prepared.layout.key_codes, 0, 256, 130);
    float largest = 0.0f;
    for (std::size_t i = 0; i < 130; ++i) {
      for (std::size_t j = 0; j < 130; ++j) {
        float sum = 0.0f;
        for (std::size_t c = 0; c < kD; ++c) {
          const float x = numerics::kE4m3Values[q[i * kD + c]];
          const float y = numerics::kE4m3Values[k[j * kD + c]];
          sum += std::fabs(x * y);
        }
        largest = std::max(largest, sum);
      }
    }
    EXPECT_LT(largest, 60'000.0f);  // and not NaN
    const std::int64_t value_rows = 2 * prepared.layout.value_rows();
    for (const std::uint8_t code :
         head_codes(prepared, prepared.layout.value_codes, 0, value_rows, value_rows)) {
      ASSERT_NE(code & 0x7F, numerics::kE4m3Nan);
    }
    EXPECT_FALSE(std::isnan(prepared.plans[0].predicted_score_error));
  }
}

INSTANTIATE_TEST_SUITE_P(, PrepareExtremes,
                         testing::Combine(testing::Values(1e-40f, 1e-12f, 1.0f, 1e12f, 3e38f),
                                          testing::Values(1e-40f, 1e-12f, 1.0f, 1e12f, 3e38f),
                                          testing::Values(1e-30f, 0.088f, 3e38f)));

}  // namespace
}  // namespace openvc::test
