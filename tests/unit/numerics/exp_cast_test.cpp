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

/// Tops of narrow heads, with the growth of rounding.
constexpr float kLargestTop = 700.0f;

std::uint8_t formula(float score, float offset) {
  const long double code = std::nearbyintl(static_cast<long double>(score) + offset);
  return static_cast<std::uint8_t>(std::clamp(code, 0.0L, 126.0L));
}

TEST(BlockOffset, IsTheNearestHalfOfTheDifferenceAndOfTwoTheEvenOne) {
  // One rounding of 126 - top to binary16 in steps of 2^-24: what one HFMA2 does.
  for (const float top : testing::finite_halves()) {
    const double exact = kPeakCode - static_cast<double>(top);
    const double expected = testing::round_to_half(exact * 0x1p-24) * 0x1p24;
    ASSERT_EQ(static_cast<double>(block_offset(top)), expected) << top;
  }
}

TEST(BlockOffset, LeavesTheTopAtThePeakCodeWhereverItIsExact) {
  const float limit = static_cast<float>(kExactOffsets - kPeakCode);
  int ties = 0;
  for (const float top : testing::finite_halves(limit)) {
    const float offset = block_offset(top);
    ASSERT_EQ(offset, std::nearbyint(offset)) << top;
    ASSERT_LE(std::fabs(static_cast<double>(top) + static_cast<double>(offset) - kPeakCode), 0.5);
    ASSERT_EQ(exp_cast(top, offset), kPeakCode) << top;
    if (std::fabs(static_cast<double>(top) + static_cast<double>(offset) - kPeakCode) == 0.5)
      ++ties;
  }
  EXPECT_GT(ties, 1000) << "halves are among the tops";
}

TEST(BlockOffset, NonFiniteTopsMakeCodesNanOrZero) {
  for (const float top : {infinity(), quiet_nan()}) {
    EXPECT_EQ(exp_cast(top, block_offset(top)), kNanProbability);
  }
  EXPECT_EQ(exp_cast(1.0f, block_offset(infinity())), 0);
  EXPECT_EQ(exp_cast(1.0f, block_offset(quiet_nan())), kNanProbability);
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
    const auto top =
        static_cast<std::size_t>(random.below(static_cast<std::int64_t>(scores.size())));
    if (std::fabs(scores[top]) > kLargestTop) continue;
    const float offset = block_offset(scores[top]);
    for (std::size_t s = 0; s <= top; ++s) {
      ASSERT_EQ(exp_cast(scores[s], offset), formula(scores[s], offset))
          << scores[s] << ' ' << offset;
    }
  }
}

TEST(ExpCast, FaultsStayVisibleAndMaskedScoresVanish) {
  EXPECT_EQ(exp_cast(quiet_nan(), kPeakCode), kNanProbability);
  EXPECT_EQ(exp_cast(infinity(), kPeakCode), kNanProbability);
  EXPECT_EQ(exp_cast(60000.0f, kPeakCode), kNanProbability);
  EXPECT_EQ(exp_cast(0.0f, kPeakCode), kE4m3MaxCode);
  EXPECT_EQ(exp_cast(1.0f, kPeakCode), kNanProbability);
  EXPECT_TRUE(std::isnan(e4m3_decode(kNanProbability)));
  EXPECT_EQ(exp_cast(-infinity(), kPeakCode), 0);
  EXPECT_EQ(exp_cast(-infinity(), 0.0f), 0);
  EXPECT_EQ(exp_cast(-infinity(), block_offset(-65504.0f)), 0);
}

// A kernel computes probability bytes with binary16 instructions, the CPU backend with the
// functions under test. These are the tests that make them equal; tests/exhaustive covers every
// pair.

/// Offsets that a kernel can meet.
std::vector<float> narrow_offsets() {
  std::vector<float> offsets;
  for (const float top : testing::finite_halves(kLargestTop)) {
    const float offset = block_offset(top);
    if (offsets.empty() || offset != offsets.back()) offsets.push_back(offset);
  }
  return offsets;
}

TEST(TensorCoreRecipe, GivesTheBytesOfTheContract) {
  const std::vector<float> offsets = narrow_offsets();
  ASSERT_EQ(offsets.size(), 1401u);
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
  EXPECT_EQ(testing::code_bits(testing::recipe(-infinity(), -59904.0)), 0);
}

TEST(Exp2CodeUnits, IsWithinOneUlp) {
  const auto check = [](float x) {
    const long double exact = std::exp2l(static_cast<long double>(x) / 8.0L);
    ASSERT_LE(testing::ulp_distance(exp2_code_units(x), exact), 1.0) << x;
  };
  for (int x = -1300; x <= 1008; ++x) check(static_cast<float>(x));
  testing::Random random(3);
  for (int i = 0; i < 300000; ++i) {
    check(static_cast<float>(random.uniform(-1300.0, 1008.0)));
    check(static_cast<float>(-std::exp2(random.uniform(-30.0, 10.0))));
  }
}

TEST(Exp2CodeUnits, IsExactForWholeOctavesAndLimits) {
  for (int octaves = -126; octaves <= 126; ++octaves) {
    EXPECT_EQ(exp2_code_units(static_cast<float>(8 * octaves)), exp2_int(octaves));
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
  for (int x = -8 * 1300; x <= 8 * 1008; ++x) {
    const float weight = exp2_code_units(static_cast<float>(x) / 8.0f);
    ASSERT_GE(weight, previous) << x;
    previous = weight;
  }
  EXPECT_TRUE(is_finite(previous));
}

}  // namespace
}  // namespace openvc::numerics
