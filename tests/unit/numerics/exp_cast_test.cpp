// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/exp_cast.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "unit/numerics/oracles.hpp"
#include "unit/numerics/sweep.hpp"
#include "unit/numerics/tensor_core_recipe.hpp"

namespace openvc::numerics {
namespace {

/// The range that score_scale() guarantees, with room.
constexpr float kLargestRowMax = 60000.0f;

std::uint8_t formula(float score, float offset) {
  const long double code = std::nearbyintl(static_cast<long double>(score) + offset);
  return static_cast<std::uint8_t>(std::clamp(code, 0.0L, 126.0L));
}

TEST(RowOffset, IsTheLargestHalfThatKeepsTheMaximumAtThePeak) {
  // In steps of 2^-24 binary16 represents the integers that a sorted list of all halves names.
  std::vector<double> offsets;
  for (const float half : testing::finite_halves()) {
    offsets.push_back(static_cast<double>(half) * 0x1p24);
  }
  for (const float row_max : testing::finite_halves(kLargestRowMax)) {
    const double limit = kPeakCode - static_cast<double>(row_max);  // exact
    const double expected = *(std::upper_bound(offsets.begin(), offsets.end(), limit) - 1);
    ASSERT_EQ(static_cast<double>(row_offset(row_max)), expected) << row_max;
  }
}

TEST(RowOffset, IsAnIntegerThatBinary16HoldsAndFallsWithTheMaximum) {
  float previous = infinity();
  for (const float row_max : testing::finite_halves(kLargestRowMax)) {
    const float offset = row_offset(row_max);
    EXPECT_EQ(offset, std::nearbyint(offset)) << row_max;
    const float scaled = offset * exp2_int(kHalfGridExponent);
    ASSERT_EQ(half_to_float(float_to_half(scaled)), scaled) << row_max;
    ASSERT_LE(static_cast<double>(offset) + static_cast<double>(row_max), kPeakCode) << row_max;
    ASSERT_GT(static_cast<double>(offset) + static_cast<double>(row_max), kPeakCode - 32.0)
        << row_max;
    ASSERT_LE(offset, previous) << row_max;
    previous = offset;
  }
}

TEST(RowOffset, NonFiniteMaximaMakeCodesNanOrZero) {
  for (const float row_max : {infinity(), quiet_nan()}) {
    const float offset = row_offset(row_max);
    EXPECT_EQ(exp_cast(row_max, offset), kNanProbability);
    EXPECT_EQ(exp_cast_tail(row_max, offset), kNanProbability);
  }
  EXPECT_EQ(exp_cast(1.0f, row_offset(infinity())), 0);
  EXPECT_EQ(exp_cast(1.0f, row_offset(quiet_nan())), kNanProbability);
}

TEST(ExpCast, RoundsHalfToEven) {
  for (int i = -4096; i <= 4096; ++i) {
    const float x = static_cast<float>(i) / 8.0f;
    EXPECT_EQ(static_cast<float>(round_half_even(x)), std::nearbyint(x)) << x;
  }
  EXPECT_EQ(round_half_even(4194303.5f), 4194304);
  EXPECT_EQ(round_half_even(-4194303.5f), -4194304);
  EXPECT_EQ(round_half_even(0x1.FFFFFEp-2f), 0);
}

TEST(ExpCast, FollowsTheFormula) {
  const std::vector<float> scores = testing::finite_halves();
  testing::Random random(7);
  for (int i = 0; i < 40; ++i) {
    const auto row_max =
        static_cast<std::size_t>(random.below(static_cast<std::int64_t>(scores.size())));
    const float offset = row_offset(scores[row_max]);
    for (std::size_t s = 0; s <= row_max; ++s) {
      ASSERT_EQ(exp_cast(scores[s], offset), formula(scores[s], offset))
          << scores[s] << ' ' << offset;
    }
  }
}

TEST(ExpCast, NeverExceedsThePeakForScoresOfTheRow) {
  const std::vector<float> scores = testing::finite_halves(kLargestRowMax);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const float offset = row_offset(scores[i]);
    ASSERT_LE(exp_cast(scores[i], offset), kPeakCode) << scores[i];
    ASSERT_LE(exp_cast_tail(scores[i], offset), kPeakCode) << scores[i];
    ASSERT_GE(exp_cast(scores[i], offset), kPeakCode - 32) << scores[i];
  }
}

TEST(ExpCast, FaultsStayVisibleAndMaskedScoresVanish) {
  EXPECT_EQ(exp_cast(quiet_nan(), kPeakCode), kNanProbability);
  EXPECT_EQ(exp_cast_tail(quiet_nan(), kPeakCode), kNanProbability);
  EXPECT_EQ(exp_cast(infinity(), kPeakCode), kNanProbability);
  EXPECT_EQ(exp_cast(60000.0f, kPeakCode), kNanProbability);
  EXPECT_EQ(exp_cast(0.0f, kPeakCode), kE4m3MaxCode);
  EXPECT_EQ(exp_cast(1.0f, kPeakCode), kNanProbability);
  EXPECT_TRUE(std::isnan(e4m3_decode(kNanProbability)));
  EXPECT_EQ(exp_cast(-infinity(), kPeakCode), 0);
  EXPECT_EQ(exp_cast_tail(-infinity(), kPeakCode), 0);
  EXPECT_EQ(exp_cast(-infinity(), 0.0f), 0);
  EXPECT_EQ(exp_cast_tail(-infinity(), 0.0f), 0);
  EXPECT_EQ(exp_cast(-60000.0f, row_offset(60000.0f)), 0);
}

TEST(ExpCast, TailCorrectionIsTheMaximumWithItsLine) {
  for (std::int32_t code = -kUnclampedCodeLimit; code <= kUnclampedCodeLimit; ++code) {
    const auto line = static_cast<std::int32_t>(std::nearbyint(code / 4.0 + 4.0));
    EXPECT_EQ(correct_tail(code), std::max(code, line)) << code;
  }
}

// A kernel computes probability bytes with binary16 instructions, the CPU backend with the
// functions under test. These are the tests that make them equal; tests/exhaustive covers every
// pair.

/// Offsets that a kernel can meet: all integers near the peak, a sample of the others.
std::vector<float> sampled_offsets() {
  std::vector<float> offsets;
  for (const float row_max : testing::finite_halves(kLargestRowMax)) {
    const float offset = row_offset(row_max);
    if (offsets.empty() || offset != offsets.back()) offsets.push_back(offset);
  }
  const std::size_t stride = testing::full_tests() ? 2 : 16;
  std::vector<float> sample;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const bool near_peak = std::fabs(offsets[i] - kPeakCode) < 160.0f;
    const bool near_grid_change =
        std::fabs(std::fabs(offsets[i]) - 2048.0f) < 8.0f || std::fabs(offsets[i]) > 59000.0f;
    if (near_peak || near_grid_change || i % stride == 0) sample.push_back(offsets[i]);
  }
  return sample;
}

TEST(TensorCoreRecipe, GivesTheBytesOfTheContract) {
  const std::vector<float> offsets = sampled_offsets();
  ASSERT_GT(offsets.size(), 900u);
  const testing::Mismatches mismatches = testing::sweep(
      offsets.size(), [&](std::uint64_t begin, std::uint64_t end, testing::Mismatches& found) {
        for (std::uint64_t i = begin; i < end; ++i) {
          testing::check_recipes(offsets[static_cast<std::size_t>(i)], found);
        }
      });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

TEST(TensorCoreRecipe, ScoresThatAreNotFinite) {
  EXPECT_EQ(testing::code_bits(testing::recipe(quiet_nan(), kPeakCode)),
            exp_cast(quiet_nan(), kPeakCode));
  EXPECT_EQ(testing::code_bits(testing::recipe_with_tail(quiet_nan(), kPeakCode)),
            exp_cast_tail(quiet_nan(), kPeakCode));
  EXPECT_EQ(testing::code_bits(testing::recipe(-infinity(), -59904.0)), 0);
  EXPECT_EQ(testing::code_bits(testing::recipe_with_tail(-infinity(), -59904.0)), 0);
}

TEST(Exp2CodeUnits, IsWithinOneUlp) {
  const auto check = [](float x) {
    const long double exact = std::exp2l(static_cast<long double>(x) / 8.0L);
    ASSERT_LE(testing::ulp_distance(exp2_code_units(x), exact), 1.0) << x;
  };
  for (int x = -1300; x <= 0; ++x) check(static_cast<float>(x));
  testing::Random random(3);
  for (int i = 0; i < 300000; ++i) {
    check(static_cast<float>(-1300.0 * random.uniform()));
    check(static_cast<float>(-std::exp2(random.uniform(-30.0, 10.0))));
  }
}

TEST(Exp2CodeUnits, IsExactForWholeOctavesAndLimits) {
  for (int octaves = 0; octaves <= 126; ++octaves) {
    EXPECT_EQ(exp2_code_units(static_cast<float>(-8 * octaves)), exp2_int(-octaves));
  }
  EXPECT_EQ(exp2_code_units(-0.0f), 1.0f);
  EXPECT_EQ(exp2_code_units(-1184.0f), 0x1p-148f);
  EXPECT_EQ(exp2_code_units(-1192.0f), 0.0f);
  EXPECT_EQ(exp2_code_units(-1e30f), 0.0f);
  EXPECT_EQ(exp2_code_units(-infinity()), 0.0f);
  EXPECT_TRUE(std::isnan(exp2_code_units(quiet_nan())));
}

TEST(Exp2CodeUnits, RisesWithItsArgument) {
  float previous = 0.0f;
  for (int x = -8 * 1300; x <= 0; ++x) {
    const float factor = exp2_code_units(static_cast<float>(x) / 8.0f);
    ASSERT_GE(factor, previous) << x;
    ASSERT_LE(factor, 1.0f) << x;
    previous = factor;
  }
}

}  // namespace
}  // namespace openvc::numerics
