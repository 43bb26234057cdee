// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "numerics/exp_cast.hpp"
#include "unit/numerics/oracles.hpp"
#include "unit/numerics/sweep.hpp"
#include "unit/numerics/tensor_core_recipe.hpp"

// Probability bytes of the contract against the emulated binary16 instructions of a kernel, for
// every score and every row maximum that preparation allows. Equal bytes on all backends rest on
// this.
namespace openvc::numerics {
namespace {

constexpr float kLargestScore = 60000.0f;

TEST(ExpCastAllPairs, TensorCoreRecipeGivesTheBytesOfTheContract) {
  // Row maxima act through their offset alone.
  std::vector<float> offsets;
  for (const float row_max : testing::finite_halves(kLargestScore)) {
    const float offset = row_offset(row_max);
    if (offsets.empty() || offset != offsets.back()) offsets.push_back(offset);
  }
  const testing::Mismatches mismatches = testing::sweep(
      offsets.size(), [&](std::uint64_t begin, std::uint64_t end, testing::Mismatches& found) {
        for (std::uint64_t i = begin; i < end; ++i) {
          testing::check_recipes(offsets[static_cast<std::size_t>(i)], found);
        }
      });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

TEST(ExpCastAllPairs, WideDifferenceIsRoundedOnce) {
  const std::vector<float> halves = testing::finite_halves(kLargestScore);
  const testing::Mismatches mismatches = testing::sweep(
      halves.size(), [&](std::uint64_t begin, std::uint64_t end, testing::Mismatches& found) {
        for (std::uint64_t i = begin; i < end; ++i) {
          const double row_max = static_cast<double>(halves[static_cast<std::size_t>(i)]);
          for (std::uint64_t s = 0; s <= i; ++s) {
            const float score = halves[static_cast<std::size_t>(s)];
            const float difference =
                half_to_float(float_to_half(score - halves[static_cast<std::size_t>(i)]));
            const double exact = testing::wide_difference(static_cast<double>(score), row_max);
            if (static_cast<double>(difference) != exact) {
              found.check(exact, static_cast<double>(difference), static_cast<double>(score),
                          row_max);
            }
          }
        }
      });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

TEST(Exp2AllArguments, IsWithinOneUlp) {
  constexpr std::uint32_t kFirst = 0x8000'0000u;  // -0; bits rise as values fall
  const std::uint64_t count = float_bits(-1200.0f) - kFirst + 1;
  const testing::Mismatches mismatches = testing::sweep(
      count, [&](std::uint64_t begin, std::uint64_t end, testing::Mismatches& found) {
        for (std::uint64_t i = begin; i < end; ++i) {
          const float x = float_from_bits(kFirst + static_cast<std::uint32_t>(i));
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
