// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/moments.hpp"

#include <gtest/gtest.h>

#include <set>

#include "numerics/token_sample.hpp"
#include "unit/numerics/axes_cases.hpp"

namespace openvc::numerics {
namespace {

TEST(TokenSample, HoldsAllTokensOfShortSequences) {
  for (const std::int64_t tokens : {1, 2, 127, 2047, 2048}) {
    ASSERT_EQ(sample_size(tokens), tokens);
    for (int i = 0; i < tokens; ++i) ASSERT_EQ(sampled_token(i, tokens), i) << tokens;
  }
}

TEST(TokenSample, TakesOneTokenOfEveryStratum) {
  for (const std::int64_t tokens : {2049, 3000, 4096, 10'080, 73'397, 75'600, 134'217'727}) {
    ASSERT_EQ(sample_size(tokens), kSampleTokens);
    std::int64_t previous = -1;
    for (int i = 0; i < kSampleTokens; ++i) {
      const std::int64_t token = sampled_token(i, tokens);
      ASSERT_GE(token, previous);
      ASSERT_GE(token, i * tokens / kSampleTokens);
      ASSERT_LE(token, (i + 1) * tokens / kSampleTokens);
      ASSERT_LT(token, tokens);
      previous = token;
    }
  }
}

/// 75,600 = 21 frames of 45 x 80: no column, row or frame may be missing or dominate.
TEST(TokenSample, SeesAllOfAnImage) {
  constexpr std::int64_t kTokens = 75'600;
  for (const std::int64_t width : {80, 45, 40, 36, 3'600}) {
    std::vector<int> counts(static_cast<std::size_t>(width));
    for (int i = 0; i < kSampleTokens; ++i) {
      ++counts[static_cast<std::size_t>(sampled_token(i, kTokens) % width)];
    }
    const double expected = double(kSampleTokens) / double(width);
    for (const int count : counts) {
      EXPECT_LE(count, 2.0 * expected + 4) << width;
      if (expected > 20) {
        EXPECT_GE(count, 0.4 * expected) << width;
      }
    }
  }
}

TEST(Moments, CodesUseTheirRange) {
  testing::Random random(3);
  for (int i = 0; i < 10'000; ++i) {
    const auto a = static_cast<float>(random.normal() * std::exp2(random.uniform(-90, 120)));
    const auto b = static_cast<float>(random.normal() * std::exp2(random.uniform(-90, 120)));
    const float min = std::min(a, b);
    const float max = std::max(a, b);
    for (const bool centred : {false, true}) {
      const MomentScale scale = moment_scale(min, max, centred);
      const int low = moment_code(min, scale.centre, scale.multiplier());
      const int high = moment_code(max, scale.centre, scale.multiplier());
      const int largest = std::max(std::abs(low), std::abs(high));
      EXPECT_GE(largest, 64) << min << " " << max;
      EXPECT_LE(largest, 127) << min << " " << max;
    }
  }
}

TEST(Moments, CodesRoundToNearestEvenAndAreAlwaysDefined) {
  EXPECT_EQ(moment_code(2.5f, 0.0f, 1.0f), 2);
  EXPECT_EQ(moment_code(3.5f, 0.0f, 1.0f), 4);
  EXPECT_EQ(moment_code(-2.5f, 0.0f, 1.0f), -2);
  EXPECT_EQ(moment_code(infinity(), 0.0f, 1.0f), 127);
  EXPECT_EQ(moment_code(-infinity(), 0.0f, 1.0f), -127);
  EXPECT_GE(moment_code(quiet_nan(), 0.0f, 1.0f), -127);
  for (const float x : {0.0f, 1e-45f, 1e-40f, 3e38f, infinity(), quiet_nan()}) {
    for (const bool centred : {false, true}) {
      const MomentScale scale = moment_scale(-x, x, centred);
      EXPECT_TRUE(is_finite(scale.multiplier()) && scale.multiplier() > 0.0f) << x;
    }
  }
}

TEST(Moments, AreThoseOfTheRowsButForRounding) {
  for (const testing::AxesCase& c : testing::axes_cases()) {
    for (const bool centred : {false, true}) {
      const testing::Rows& rows = centred ? c.key : c.query;
      const auto moments = testing::moments_of(rows, centred);
      const std::vector<double> exact = testing::exact_moments(rows, centred);
      const auto tokens = static_cast<int>(rows.size());
      const int largest = largest_exponent(*moments);
      double sum = 0.0;
      for (int i = 0; i < kHeadDim; ++i) sum += moment(*moments, tokens, centred, largest, i, i);
      double error = 0.0;
      double size = 0.0;
      for (int i = 0; i < kHeadDim; ++i) {
        for (int j = 0; j < kHeadDim; ++j) {
          const double x =
              moment(*moments, tokens, centred, largest, std::min(i, j), std::max(i, j)) / sum;
          const double y = exact[static_cast<std::size_t>(i * kHeadDim + j)];
          error += (x - y) * (x - y);
          size += y * y;
        }
      }
      EXPECT_LT(std::sqrt(error / size), 0.02) << c.name << " " << centred;
    }
  }
}

TEST(Moments, OfConstantRowsVanishAboutTheirMean) {
  testing::Rows rows(50);
  for (auto& row : rows) row.fill(3.0e5f);
  const auto moments = testing::moments_of(rows, true);
  for (int c = 0; c < kHeadDim; ++c) {
    EXPECT_EQ(moment(*moments, 50, true, largest_exponent(*moments), c, c), 0.0f);
  }
}

}  // namespace
}  // namespace openvc::numerics
