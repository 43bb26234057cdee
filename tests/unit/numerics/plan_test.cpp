// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/plan_scores.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace openvc::numerics {
namespace {

constexpr float kScale = 0.08838834764831845f;
constexpr std::int64_t kTokens = 1000;

/// Statistics of rows whose channel c has mean square energy[c] in Q and K, mean zero.
ScoreStatistics statistics(float common, float outlier = 0.0f, int outliers = 0) {
  ScoreStatistics s;
  float row = 0.0f;
  for (int c = 0; c < kHeadDim; ++c) {
    const float energy = c < outliers ? outlier : common;
    s.query_squares[c] = s.key_squares[c] = energy * static_cast<float>(kTokens);
    row += energy;
  }
  const float magnitude = std::sqrt(std::max(common, outlier)) * 3.0f;
  s.query.magnitude_bits = s.key.magnitude_bits = float_bits(magnitude);
  s.query.row_sum_squares = s.key.row_sum_squares = row * 4.0f;
  return s;
}

HeadPlan head_plan(const ScoreStatistics& s, const NumericOptions& options = {},
                   float softmax_scale = kScale) {
  HeadPlan result;
  plan_scores(s, kTokens, kTokens, softmax_scale, options, result);
  return result;
}

ScorePlan plan(const ScoreStatistics& s, const NumericOptions& options = {},
               float softmax_scale = kScale) {
  return head_plan(s, options, softmax_scale).scores;
}

NumericOptions target(float score_error, int max_steps) {
  NumericOptions options;
  options.score_error_target = score_error;
  options.max_extra_steps = max_steps;
  options.rotation = Choice::never;
  return options;
}

TEST(PlanScores, PredictsTheErrorOfWhiteInputs) {
  const ScorePlan p = plan(statistics(1.0f), target(1e9f, 4));
  const float gain = query_gain(kScale);
  EXPECT_NEAR(std::sqrt(p.error_variance), gain * std::sqrt(128.0f * 2.0f) * 0.026f, 1e-4f);
  EXPECT_EQ(p.extra_steps, 0);
  EXPECT_EQ(p.rotated, 0);
}

/// Predicted variance when exactly `steps` are spent.
float variance_with(const ScoreStatistics& s, int steps) {
  const ScorePlan p = plan(s, target(0.0f, steps));
  EXPECT_EQ(p.extra_steps, steps);
  return p.error_variance;
}

TEST(PlanScores, MinimisesVariancePlusThePriceOfSteps) {
  // 20 strong channels: one step leaves four of them, two steps leave none.
  const ScoreStatistics s = statistics(0.01f, 25.0f, 20);
  for (const float error : {0.0f, 0.003f, 0.03f, 0.3f, 1.0f, 3.0f, 10.0f, 1e9f}) {
    for (const int limit : {0, 1, 2, 4}) {
      int best = 0;
      for (const int steps : {1, 2, 4}) {
        if (steps > limit) break;
        const auto cost = [&](int n) {
          return variance_with(s, n) + error * error * static_cast<float>(n);
        };
        if (cost(steps) < cost(best)) best = steps;
      }
      EXPECT_EQ(plan(s, target(error, limit)).extra_steps, best) << error << " " << limit;
    }
  }
  EXPECT_EQ(plan(s, target(0.0f, 4)).extra_steps, 4);
  EXPECT_EQ(plan(s, target(0.5f, 4)).extra_steps, 2);
  EXPECT_EQ(plan(s, target(1e9f, 4)).extra_steps, 0);
}

TEST(PlanScores, RanksChannelsByEnergyTiesByIndex) {
  ScoreStatistics s = statistics(1.0f);
  s.query_squares[90] *= 100.0f;
  s.key_squares[17] *= 200.0f;
  const HeadPlan p = head_plan(s, target(0.0f, 1));
  EXPECT_EQ(p.residual_channels[0], 17);
  EXPECT_EQ(p.residual_channels[1], 90);
  for (int i = 2; i < 16; ++i) EXPECT_EQ(p.residual_channels[i], i - 2) << i;
}

TEST(PlanScores, RotatesOnlyWhereItIsPredictedToHelp) {
  NumericOptions options = target(1e9f, 4);
  options.rotation = Choice::automatic;
  EXPECT_FALSE(plan(statistics(1.0f), options).rotated != 0) << "white inputs gain nothing";
  const ScoreStatistics spiky = statistics(0.01f, 25.0f, 4);
  const ScorePlan rotated = plan(spiky, options);
  EXPECT_TRUE(rotated.rotated != 0);
  EXPECT_LT(rotated.error_variance,
            kRotationVarianceShare * plan(spiky, target(1e9f, 4)).error_variance);
  options.score_error_target = 0.0f;
  EXPECT_FALSE(plan(spiky, options).rotated != 0) << "residual columns instead";
  options.rotation = Choice::always;
  EXPECT_TRUE(plan(spiky, options).rotated != 0);
  EXPECT_EQ(plan(spiky, options).extra_steps, 0);
}

TEST(PlanScores, DoesNotRotateWhatWouldOverflow) {
  ScoreStatistics s = statistics(1.0f);
  s.query.magnitude_bits = float_bits(3e38f);
  NumericOptions options;
  options.rotation = Choice::always;
  EXPECT_FALSE(plan(s, options).rotated != 0);
}

TEST(PlanScores, MeanEnergyDoesNotCount) {
  ScoreStatistics s = statistics(1.0f);
  for (int c = 0; c < kHeadDim; ++c) {
    s.key_sums[c] = 50.0f * static_cast<float>(kTokens);
    s.key_squares[c] += 2500.0f * static_cast<float>(kTokens);
  }
  s.key.magnitude_bits = float_bits(54.0f);
  s.key.row_sum_squares = 128.0f * 2600.0f;
  const ScorePlan smooth = plan(s, target(1e9f, 0));
  EXPECT_FLOAT_EQ(head_plan(s, target(1e9f, 0)).key_means[3], 50.0f);
  EXPECT_NEAR(smooth.error_variance, plan(statistics(1.0f), target(1e9f, 0)).error_variance, 1e-3f);
  NumericOptions raw = target(1e9f, 0);
  raw.smooth_keys = false;
  EXPECT_EQ(head_plan(s, raw).key_means[3], 0.0f);
  EXPECT_GT(plan(s, raw).error_variance, 1000.0f * smooth.error_variance);
}

TEST(PlanScores, NonFiniteTensorsGetNanMultipliers) {
  ScoreStatistics s = statistics(1.0f);
  s.query.magnitude_bits = kFloatInfinityBits;
  EXPECT_TRUE(std::isnan(plan(s).query_multiplier));
  EXPECT_FALSE(std::isnan(plan(s).key_multiplier));
  s = statistics(1.0f);
  s.key.magnitude_bits = kFloatQuietNanBits;
  EXPECT_TRUE(std::isnan(plan(s).key_multiplier));
  EXPECT_EQ(plan(s).extra_steps, 0);
}

TEST(PlanScores, NeverNanAndNormalMultipliersForFiniteInputs) {
  const float inf = std::numeric_limits<float>::infinity();
  const float magnitudes[] = {1e-45f, 1e-38f, 1e-20f, 1.0f, 1e15f, 1e25f, 3.4e38f};
  for (const float query : magnitudes) {
    for (const float key : magnitudes) {
      for (const float scale : {1e-45f, 1e-20f, kScale, 1e20f, 3.4e38f}) {
        ScoreStatistics s;
        s.query.magnitude_bits = float_bits(query);
        s.key.magnitude_bits = float_bits(key);
        s.query.row_sum_squares = query * query;
        s.key.row_sum_squares = key * key;
        for (int c = 0; c < kHeadDim; ++c) {
          s.query_squares[c] = query * query;
          s.key_squares[c] = key > 1e18f ? inf : key * key;
          s.key_sums[c] = key > 1e30f ? inf : key;
        }
        const ScorePlan p = plan(s, {}, scale);
        EXPECT_FALSE(std::isnan(p.error_variance));
        EXPECT_TRUE(std::isnormal(p.key_multiplier));
        EXPECT_TRUE(std::isfinite(p.query_multiplier));
        EXPECT_GT(p.query_multiplier, 0.0f);
        EXPECT_GE(p.score_exponent, 0);
      }
    }
  }
}

TEST(PlanScores, ExponentsFollowThePowersOfTwoOfTheInputs) {
  // Scaling Q by 2^10 and K by 2^-10 leaves the scores alone: the codes must not change.
  const ScoreStatistics s = statistics(1.0f);
  ScoreStatistics t = s;
  t.query.magnitude_bits = float_bits(s.query.magnitude() * 0x1p10f);
  t.query.row_sum_squares *= 0x1p20f;
  t.key.magnitude_bits = float_bits(s.key.magnitude() * 0x1p-10f);
  t.key.row_sum_squares *= 0x1p-20f;
  const ScorePlan a = plan(s, target(1e9f, 0));
  const ScorePlan b = plan(t, target(1e9f, 0));
  EXPECT_EQ(a.score_exponent, b.score_exponent);
  EXPECT_EQ(a.query_multiplier, b.query_multiplier * 0x1p10f);
  EXPECT_EQ(a.key_multiplier, b.key_multiplier * 0x1p-10f);
}

}  // namespace
}  // namespace openvc::numerics
