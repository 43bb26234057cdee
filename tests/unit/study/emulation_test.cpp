// SPDX-License-Identifier: BSD-3-Clause
#include "study/emulation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "numerics/exp_cast.hpp"
#include "openvc/attention.hpp"
#include "study/error_measure.hpp"
#include "study/families.hpp"
#include "unit/study/head_inputs.hpp"

namespace openvc::study {
namespace {

constexpr int kChannels = 128;
constexpr std::int64_t kFirstRow[] = {0};

schedule::Problem problem(std::int64_t queries, std::int64_t keys, Mask mask = Mask::none) {
  return {.batch = 1,
          .heads = 1,
          .queries = queries,
          .keys = keys,
          .repair_rows = 0,
          .mask = mask,
          .key_order = KeyOrder::mid_window};
}

Scores scores_of(std::vector<double> values) {
  const auto keys = static_cast<std::int64_t>(values.size());
  return {kFirstRow, keys, std::move(values)};
}

TEST(SoftmaxWeights, EightCodeUnitsAreAnOctave) {
  const Weights weights = softmax_weights(scores_of({40.0, 32.0, 24.0}), problem(1, 3));
  EXPECT_DOUBLE_EQ(weights.values[0], 1.0);
  EXPECT_DOUBLE_EQ(weights.values[1], 0.5);
  EXPECT_DOUBLE_EQ(weights.values[2], 0.25);
  EXPECT_DOUBLE_EQ(weights.sums[0], 1.75);
}

TEST(CastWeights, WholeOctavesAreExact) {
  const CastWeights cast = cast_weights(scores_of({40.0, 32.0, 24.0}), problem(1, 3), {});
  EXPECT_DOUBLE_EQ(cast.weights.values[1] / cast.weights.values[0], 0.5);
  EXPECT_DOUBLE_EQ(cast.weights.values[2] / cast.weights.values[0], 0.25);
  EXPECT_EQ(cast.codes[0] - cast.codes[1], 8);
  EXPECT_DOUBLE_EQ(cast.weights.sums[0], 1.75 * cast.weights.values[0]);
}

TEST(CastWeights, EveryBlockHasThePeakCodeAndItsExactWeight) {
  std::vector<double> values(3 * 128, -400.0);
  values[0] = 16.0;
  values[128] = 0.0;
  values[2 * 128] = -3.3125;
  const Scores scores = scores_of(values);
  for (const auto& rule : {numerics::head_rule(0, false), numerics::head_rule(0, true)}) {
    const CastWeights cast = cast_weights(scores, problem(1, 384), rule);
    EXPECT_DOUBLE_EQ(cast.references[0], 16.0);
    for (const std::size_t key : {0, 128, 256}) {
      EXPECT_EQ(cast.codes[key], numerics::kPeakCode);
      EXPECT_DOUBLE_EQ(cast.weights.values[key] / cast.weights.values[0],
                       std::exp2((values[key] - 16.0) / 8.0));
    }
  }
}

TEST(CastWeights, WeightsFarBelowTheTopOfTheirBlockAreFlushed) {
  // 125 codes below the peak: one code above zero. Another block does not matter.
  std::vector<double> values(129, -1000.0);
  values[0] = 0.0;
  values[1] = -125.0;
  values[2] = -128.0;
  values[128] = -128.0;
  const Scores scores = scores_of(values);
  const CastWeights cast = cast_weights(scores, problem(1, 129), {});
  EXPECT_EQ(cast.codes[1], numerics::kPeakCode - 125);
  EXPECT_EQ(cast.codes[2], 0);
  EXPECT_EQ(cast.codes[128], numerics::kPeakCode);
  const auto flushed = flushed_mass(softmax_weights(scores, problem(1, 129)), cast);
  EXPECT_NEAR(flushed[0], std::exp2(-16.0), 1e-8);
}

TEST(PartlyCastWeights, SplitTheRoundingFromTheTail) {
  const Scores scores = scores_of({0.0, -3.5, -124.0});
  const CastWeights cast = cast_weights(scores, problem(1, 3), {});
  const Weights normal = partly_cast_weights(cast, scores, problem(1, 3), CastPart::normal);
  const Weights tail = partly_cast_weights(cast, scores, problem(1, 3), CastPart::tail);
  EXPECT_EQ(normal.values[0], cast.weights.values[0]);
  EXPECT_EQ(normal.values[1], cast.weights.values[1]);
  EXPECT_NE(normal.values[2], cast.weights.values[2]);
  EXPECT_NE(tail.values[1], cast.weights.values[1]);
  EXPECT_EQ(tail.values[2], cast.weights.values[2]);
  // What is not cast keeps its exact ratio.
  EXPECT_NEAR(tail.values[1] / tail.values[0], std::exp2(-3.5 / 8.0), 1e-12);
  EXPECT_DOUBLE_EQ(tail.sums[0], tail.values[0] + tail.values[1] + tail.values[2]);
}

TEST(Weights, MaskedKeysDoNotCount) {
  constexpr std::int64_t kRows[] = {0, 1, 2};
  Scores scores{kRows, 2, {9.0, 900.0, 1.0, 900.0, 0.0, 0.0}};
  const schedule::Problem causal = problem(3, 2, Mask::causal);
  const Weights exact = softmax_weights(scores, causal);
  EXPECT_EQ(exact.sums, (std::vector{0.0, 1.0, 2.0}));
  const CastWeights cast = cast_weights(scores, causal, {});
  EXPECT_EQ(cast.weights.sums[0], 0.0);
  EXPECT_EQ(cast.weights.values[3], 0.0);
  const std::vector<float> values(2 * kChannels, 3.0f);
  const auto averages = average_values(cast.weights, values.data());
  EXPECT_EQ(averages[0], 0.0);
  EXPECT_DOUBLE_EQ(averages[kChannels], 3.0);
}

/// The float64 emulation of the prepared bytes must be what the backend computes from them: two
/// implementations that share the contract's scalar functions, but neither sums nor loops.
struct BackendCase {
  const char* family;
  std::int64_t queries;
  std::int64_t keys;
  Mask mask;
};

class EmulationAgainstBackend : public testing::TestWithParam<BackendCase> {};

TEST_P(EmulationAgainstBackend, DifferOnlyInTheOrderOfSums) {
  const BackendCase& c = GetParam();
  const Tensors in = generate(c.family, {1, c.queries, c.keys, 1}, ElementType::float16, 3);
  const auto pool = cpu::shared_pool(2);
  const PreparedHead head(head_inputs(in, c.mask), {}, 0, *pool);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(c.queries));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  const DecodedHead decoded = head.decode(rows);
  const Scores scores = quantized_scores(rows, 0, decoded);
  const auto emulated =
      average_quantized_values(cast_weights(scores, head.problem(), decoded.rule).weights, decoded);
  const std::vector<float> computed = head.run_backend(*pool);
  const std::vector<double> output(computed.begin(), computed.end());
  EXPECT_LT(measure_error(output, emulated).relative_l2(), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Shapes, EmulationAgainstBackend,
                         testing::Values(BackendCase{"gaussian", 300, 300, Mask::none},
                                         BackendCase{"video_field", 700, 700, Mask::none},
                                         BackendCase{"near_one_hot", 130, 1'111, Mask::none},
                                         BackendCase{"channel_outliers", 290, 77, Mask::causal},
                                         BackendCase{"sink_token", 129, 513, Mask::causal},
                                         BackendCase{"constant_rows", 5, 3, Mask::none}),
                         [](const auto& parameter) {
                           return std::string(parameter.param.family) +
                                  (parameter.param.mask == Mask::causal ? "_causal" : "");
                         });

TEST(Repair, EmulationAgainstBackend) {
  const Tensors in = generate("v_outlier_tokens", {1, 300, 500, 1}, ElementType::bfloat16, 3);
  const auto pool = cpu::shared_pool(2);
  constexpr std::int64_t kTokens = 25;
  const PreparedHead head(head_inputs(in), {}, kTokens, *pool);
  std::vector<std::int64_t> rows(300);
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  const DecodedHead decoded = head.decode(rows);
  const CastWeights cast =
      cast_weights(quantized_scores(rows, 0, decoded), head.problem(), decoded.rule);
  auto emulated = average_quantized_values(cast.weights, decoded);
  const std::vector<double> plain = emulated;
  add_repair(cast, 0, decoded, decoded.repair, emulated);
  EXPECT_EQ(decoded.repair.count, kTokens);
  EXPECT_GT(measure_error(plain, emulated).relative_l2(), 1e-3);
  const std::vector<float> computed = head.run_backend(*pool);
  const std::vector<double> output(computed.begin(), computed.end());
  EXPECT_LT(measure_error(output, emulated).relative_l2(), 1e-4);
}

TEST(ExactScores, LeadToExactAttention) {
  const Tensors in = generate("video_field", {1, 90, 140, 1}, ElementType::bfloat16, 1);
  constexpr std::int64_t kRows[] = {0, 7, 89};
  std::vector<float> queries(3 * kChannels);
  std::vector<float> keys(140 * kChannels);
  std::vector<float> values(140 * kChannels);
  for (std::size_t i = 0; i < 3; ++i) {
    load_row(in.q.view(), 0, kRows[i], 0, {queries.data() + i * kChannels, kChannels});
  }
  for (std::int64_t j = 0; j < 140; ++j) {
    load_row(in.k.view(), 0, j, 0, {keys.data() + j * kChannels, kChannels});
    load_row(in.v.view(), 0, j, 0, {values.data() + j * kChannels, kChannels});
  }
  constexpr double kScale = 0.07;
  const Scores scores = exact_scores(kRows, queries.data(), 140, keys.data(), kScale);
  const auto output = average_values(softmax_weights(scores, problem(90, 140)), values.data());
  std::vector<double> expected(3 * kChannels);
  exact_attention(in.q.view(), in.k.view(), in.v.view(), kRows, expected.data(), nullptr,
                  Mask::none, static_cast<float>(kScale));
  EXPECT_LT(measure_error(output, expected).relative_l2(), 1e-7);
}

}  // namespace
}  // namespace openvc::study
