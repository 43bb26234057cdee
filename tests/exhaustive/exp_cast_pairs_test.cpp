// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "numerics/exp_cast.hpp"
#include "numerics/online_softmax.hpp"
#include "unit/numerics/oracles.hpp"
#include "unit/numerics/sweep.hpp"
#include "unit/numerics/tensor_core_recipe.hpp"

// Probability bytes of the contract against the emulated binary16 instructions of a kernel, for
// every score and every top of a block that the preparation allows. Equal bytes on all backends
// rest on this.
namespace openvc::numerics {
namespace {

constexpr float kLargestScore = 60000.0f;
constexpr float kLargestNarrowScore = 700.0f;  // a little beyond what a plan calls narrow

TEST(BlockOffsetAllTops, IsOneFusedOperationAndLeavesThePeakCode) {
  testing::Mismatches mismatches;
  for (const float top : testing::finite_halves()) {
    const double x = static_cast<double>(top);
    const double recipe = testing::hfma(x, -testing::kGrid, kPeakCode * testing::kGrid);
    mismatches.check(recipe, static_cast<double>(block_offset(top)) * testing::kGrid, x);
    if (magnitude(top) > kLargestNarrowScore) continue;
    mismatches.check(kPeakCode, exp_cast(top, block_offset(top)), x);
  }
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

TEST(ExpCastAllPairs, TensorCoreRecipeGivesTheBytesOfTheContract) {
  // Tops act through their offset; of those that share one, the largest allows all scores.
  std::vector<float> tops;
  for (const float top : testing::finite_halves(kLargestNarrowScore)) {
    if (!tops.empty() && block_offset(tops.back()) == block_offset(top)) tops.pop_back();
    tops.push_back(top);
  }
  const HeadRule rule = head_rule(0, false);
  const testing::Mismatches mismatches = testing::sweep(
      tops.size(), [&](std::uint64_t begin, std::uint64_t end, testing::Mismatches& found) {
        const std::vector<float> scores = testing::finite_halves();
        for (std::uint64_t i = begin; i < end; ++i) {
          const float top = tops[static_cast<std::size_t>(i)];
          RowState row = empty_row(rule);
          const BlockCast block = begin_block(row, top, rule);
          const auto offset = static_cast<double>(block.offset);
          for (const float score : scores) {
            if (score > top) break;
            const auto x = static_cast<double>(score);
            found.check(testing::code_bits(testing::recipe(x, offset)),
                        probability_code(score, block, rule), x, static_cast<double>(top));
          }
        }
      });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

TEST(ExpCastAllPairs, WideDifferenceIsRoundedOnce) {
  const std::vector<float> halves = testing::finite_halves(kLargestScore);
  const testing::Mismatches mismatches = testing::sweep(
      halves.size(), [&](std::uint64_t begin, std::uint64_t end, testing::Mismatches& found) {
        for (std::uint64_t i = begin; i < end; ++i) {
          const double top = static_cast<double>(halves[static_cast<std::size_t>(i)]);
          for (std::uint64_t s = 0; s <= i; ++s) {
            const float score = halves[static_cast<std::size_t>(s)];
            const float difference =
                half_to_float(float_to_half(score - halves[static_cast<std::size_t>(i)]));
            const double exact = testing::wide_difference(static_cast<double>(score), top);
            if (static_cast<double>(difference) != exact) {
              found.check(exact, static_cast<double>(difference), static_cast<double>(score), top);
            }
          }
        }
      });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

/// Codes of wide heads depend on the difference alone: every one that is not positive, with every
/// exponent.
TEST(ExpCastAllPairs, WideRecipeGivesTheBytesOfTheContract) {
  testing::Mismatches mismatches;
  for (int exponent = 0; exponent <= kContract.max_score_exponent; ++exponent) {
    const HeadRule rule = head_rule(exponent, true);
    const BlockCast block{.top = 0.0f};
    for (const float difference : testing::finite_halves()) {
      if (difference > 0.0f) break;
      const auto x = static_cast<double>(difference);
      mismatches.check(testing::code_bits(testing::wide_recipe(x, exponent)),
                       probability_code(difference, block, rule), x, exponent);
    }
  }
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

TEST(Exp2AllArguments, IsWithinOneUlp) {
  // Every float from -1200 to -0 (bits rise as values fall), then from 0 to 2^127.
  constexpr std::uint32_t kFirst = 0x8000'0000u;
  const std::uint64_t below = float_bits(-1200.0f) - kFirst + 1;
  const std::uint64_t count = below + float_bits(8.0f * 127.0f);
  const testing::Mismatches mismatches = testing::sweep(
      count, [&](std::uint64_t begin, std::uint64_t end, testing::Mismatches& found) {
        for (std::uint64_t i = begin; i < end; ++i) {
          const std::uint64_t bits = i < below ? kFirst + i : i - below;
          const float x = float_from_bits(static_cast<std::uint32_t>(bits));
          const double factor = static_cast<double>(exp2_code_units(x));
          const double exact = std::exp2(static_cast<double>(x) / 8.0);
          const double binade =
              static_cast<double>(exp2_int(floor_log2(static_cast<float>(exact))));
          const double ulp = binade * 0x1p-23;
          if (!(std::fabs(factor - exact) <= ulp)) {
            found.check(exact, factor, static_cast<double>(x));
          }
        }
      });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

}  // namespace
}  // namespace openvc::numerics
