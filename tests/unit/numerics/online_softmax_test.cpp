// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/online_softmax.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "numerics/plan_scores.hpp"
#include "unit/numerics/oracles.hpp"
#include "unit/numerics/sweep.hpp"
#include "unit/numerics/tensor_core_recipe.hpp"

namespace openvc::numerics {
namespace {

using Block = std::vector<float>;

float as_half(double x) { return half_to_float(float_to_half(static_cast<float>(x))); }

RowState visit(const std::vector<Block>& blocks, const HeadRule& rule) {
  RowState row;
  for (const Block& block : blocks) {
    raise_row_max(row, *std::max_element(block.begin(), block.end()), rule);
    for (const float score : block) row.sum += e4m3_decode(probability_code(score, row, rule));
  }
  return row;
}

/// ln of the sum over keys of exp(logit), scores counting 2^exponent code units.
double exact_log_sum_exp(const std::vector<Block>& blocks, int exponent) {
  long double largest = -std::numeric_limits<long double>::infinity();
  for (const Block& block : blocks) {
    for (const float score : block) largest = std::max(largest, static_cast<long double>(score));
  }
  long double sum = 0.0L;
  for (const Block& block : blocks) {
    for (const float score : block) {
      sum += std::exp2(std::ldexp(static_cast<long double>(score) - largest, exponent) / 8.0L);
    }
  }
  return static_cast<double>(std::ldexp(largest, exponent) * std::log(2.0L) / 8.0L + std::log(sum));
}

double row_log_sum_exp(const RowState& row) {
  return static_cast<double>(log_sum_exp(row, std::log(row.sum), 0.0f, 0));
}

// Extremes of decoded code over exact probability, relative to their mean; see
// exp_cast_statistics_test.cpp.
const double kLowestError = std::log(1.0 - 0.0796);
const double kHighestError = std::log(1.0 + 0.0648);

TEST(RowMax, ChangesOnlyWithALargerMaximum) {
  const HeadRule rule;
  RowState row;
  EXPECT_EQ(raise_row_max(row, -infinity(), rule), 1.0f) << "a block without visible keys";
  EXPECT_EQ(row.row_max, -infinity());
  EXPECT_EQ(raise_row_max(row, 10.0f, rule), 1.0f) << "nothing has been accumulated yet";
  EXPECT_EQ(row.offset, kPeakCode - 10);
  row.sum = 3.0f;
  EXPECT_EQ(raise_row_max(row, 10.0f, rule), 1.0f);
  EXPECT_EQ(raise_row_max(row, -infinity(), rule), 1.0f);
  EXPECT_EQ(raise_row_max(row, quiet_nan(), rule), 1.0f) << "NaN is no maximum";
  EXPECT_EQ(row.row_max, 10.0f);
  EXPECT_EQ(raise_row_max(row, 9.5f, rule), 1.0f);
  EXPECT_EQ(row.sum, 3.0f);
  EXPECT_EQ(raise_row_max(row, 26.0f, rule), 0.25f);
  EXPECT_EQ(row.sum, 0.75f);
  EXPECT_EQ(row.offset, kPeakCode - 26);
}

TEST(RowMax, WithinOneIntegerNothingIsRescaled) {
  const HeadRule rule;
  RowState row;
  raise_row_max(row, 10.25f, rule);
  row.sum = 5.0f;
  EXPECT_EQ(raise_row_max(row, 10.75f, rule), 1.0f);
  EXPECT_EQ(row.row_max, 10.75f);
  EXPECT_EQ(row.sum, 5.0f);
}

TEST(RowMax, OrderOfBlocksOnlyMovesRoundings) {
  // Maxima a whole number of octaves apart rescale by exact powers of two, and codes in E4M3's
  // normal range keep their significands: then the sum is the same to the last bit. Scores are
  // multiples of 1/16, so that wide rows subtract their maxima exactly.
  for (const int exponent : {0, 1, 3}) {
    const HeadRule rule = head_rule(exponent, false);
    testing::Random random(11);
    std::vector<Block> blocks;
    for (int b = 0; b < 8; ++b) {
      Block block;
      const double top = std::ldexp(8.0 * static_cast<double>(random.below(6)), -exponent);
      for (int i = 0; i < 128; ++i) {
        const double below = std::ldexp(random.uniform(0.0, 60.0), -exponent);
        block.push_back(as_half(top - std::nearbyint(16.0 * below) / 16.0));
      }
      block[static_cast<std::size_t>(random.below(128))] = as_half(top);
      blocks.push_back(block);
    }
    std::vector<std::size_t> order{0, 1, 2, 3, 4, 5, 6, 7};
    const RowState reference = visit(blocks, rule);
    for (int trial = 0; trial < 50; ++trial) {
      std::vector<Block> shuffled = blocks;
      for (std::size_t i = shuffled.size() - 1; i > 0; --i) {
        std::swap(
            shuffled[i],
            shuffled[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i) + 1))]);
      }
      const RowState row = visit(shuffled, rule);
      ASSERT_EQ(float_bits(row.sum), float_bits(reference.sum)) << exponent << ' ' << trial;
      ASSERT_EQ(row.row_max, reference.row_max);
      ASSERT_EQ(row.offset, reference.offset);
    }
  }
}

TEST(RowMax, AnyOrderStaysWithinTheErrorOfTheCodes) {
  testing::Random random(12);
  for (const int exponent : {0, 2, 6}) {
    for (const bool tail : {false, true}) {
      const HeadRule rule = head_rule(exponent, tail);
      for (int trial = 0; trial < 40; ++trial) {
        std::vector<Block> blocks(6);
        for (Block& block : blocks) {
          const double centre = random.uniform(-50.0, 50.0);
          for (int i = 0; i < 128; ++i) {
            block.push_back(as_half(std::ldexp(centre + 10.0 * random.normal(), -exponent)));
          }
        }
        const double exact = exact_log_sum_exp(blocks, exponent);
        for (int order = 0; order < 4; ++order) {
          std::rotate(blocks.begin(), blocks.begin() + 1, blocks.end());
          const double error = row_log_sum_exp(visit(blocks, rule)) - exact;
          ASSERT_GT(error, kLowestError);
          ASSERT_LT(error, kHighestError);
        }
      }
    }
  }
}

TEST(LogSumExp, IsUnbiasedForManyKeys) {
  testing::Random random(13);
  for (const int exponent : {0, 1, 4}) {
    for (const double centre : {-20000.0, -300.0, 0.0, 300.0, 20000.0}) {
      // A spread beyond the grid of binary16 around the centre.
      std::vector<Block> blocks(32);
      for (Block& block : blocks) {
        for (int i = 0; i < 128; ++i) {
          block.push_back(as_half(std::ldexp(centre + random.uniform(-40.0, 0.0), -exponent)));
        }
      }
      const double error = row_log_sum_exp(visit(blocks, head_rule(exponent, false))) -
                           exact_log_sum_exp(blocks, exponent);
      // Scores beyond 2048 are integers: they miss the fractions over which the bias is averaged.
      const double tolerance = std::fabs(std::ldexp(centre, -exponent)) > 1000.0 ? 0.05 : 0.005;
      EXPECT_LT(std::fabs(error), tolerance) << exponent << ' ' << centre;
    }
  }
}

TEST(LogSumExp, SmoothingShiftIsAdded) {
  const RowState row = visit({{3.0f, 1.0f, -2.0f}}, {});
  EXPECT_FLOAT_EQ(log_sum_exp(row, std::log(row.sum), 2.5f, 0),
                  log_sum_exp(row, std::log(row.sum), 0.0f, 0) + 2.5f);
}

TEST(LogSumExp, ExcessScalesTheScoreAndTheShiftAlone) {
  const HeadRule rule = head_rule(kMaxScoreExponent, false);
  // One key at the maximum: its logit is that of the score, within binary32 and the code's bias.
  for (const float score : {-3.0f, -0x1p-24f, 0.0f, 0x1p-24f, 1.5f, 40000.0f}) {
    const RowState row = visit({{score}}, rule);
    for (int excess = 1; excess <= kMaxExcessExponent; ++excess) {
      for (const float shift : {0.0f, -0.25f * score}) {
        const double unit = std::ldexp(std::log(2.0) / 8.0, kMaxScoreExponent);
        const double scaled = static_cast<double>(score) * unit + static_cast<double>(shift);
        const double exact = std::ldexp(scaled, excess);
        const float actual = log_sum_exp(row, std::log(row.sum), shift, excess);
        if (std::fabs(exact) > 1.0001 * static_cast<double>(kFloatMax)) {
          ASSERT_EQ(actual, exact > 0.0 ? infinity() : -infinity()) << score << ' ' << excess;
        } else if (std::fabs(exact) < 0.9999 * static_cast<double>(kFloatMax)) {
          ASSERT_NEAR(static_cast<double>(actual), exact, 0.01 + 1e-6 * std::fabs(exact))
              << score << ' ' << excess;
        }
      }
    }
  }
}

TEST(LogSumExp, RowsWithoutKeysAndRowsOfNan) {
  for (const int exponent : {0, 5}) {
    const HeadRule rule = head_rule(exponent, exponent == 0);
    const RowState masked = visit({{-infinity(), -infinity()}}, rule);
    EXPECT_EQ(masked.sum, 0.0f);
    EXPECT_EQ(log_sum_exp(masked, std::log(masked.sum), 1.0f, 0), -infinity());

    const RowState poisoned = visit({{quiet_nan(), -infinity()}}, rule);
    EXPECT_TRUE(std::isnan(poisoned.sum));
    EXPECT_TRUE(std::isnan(log_sum_exp(poisoned, std::log(poisoned.sum), 0.0f, 0)));

    const RowState masked_then_seen = visit({{-infinity()}, {-7.0f, -infinity()}}, rule);
    EXPECT_GT(masked_then_seen.sum, 0.0f);
    EXPECT_TRUE(std::isfinite(row_log_sum_exp(masked_then_seen)));
  }
}

TEST(ProbabilityCode, NeverExceedsThePeakInAnyRange) {
  testing::Random random(14);
  const std::vector<float> halves = testing::finite_halves(60000.0f);
  const auto count = static_cast<std::int64_t>(halves.size());
  for (int exponent = 0; exponent <= 31; ++exponent) {
    for (const bool tail : {false, true}) {
      const HeadRule rule = head_rule(exponent, tail);
      for (int i = 0; i < 20000; ++i) {
        const std::int64_t top = random.below(count);
        const std::int64_t other =
            i % 4 == 0 ? std::max<std::int64_t>(0, top - random.below(40)) : random.below(top + 1);
        RowState row;
        raise_row_max(row, halves[static_cast<std::size_t>(top)], rule);
        ASSERT_LE(probability_code(halves[static_cast<std::size_t>(other)], row, rule), kPeakCode);
        ASSERT_GE(probability_code(row.row_max, row, rule), kPeakCode - 32);
      }
    }
  }
}

TEST(ProbabilityCode, WideRecipeGivesTheBytesOfTheContract) {
  // With the maximum 0 a score is its own difference: all differences and exponents.
  for (int exponent = 1; exponent <= 31; ++exponent) {
    RowState row;
    row.row_max = 0.0f;
    testing::Mismatches mismatches;
    for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
      const float score = half_to_float(static_cast<std::uint16_t>(bits));
      if (score > 0.0f || std::isnan(score)) continue;
      const double wide = static_cast<double>(score);
      mismatches.check(testing::code_bits(testing::wide_recipe(wide, exponent)),
                       probability_code(score, row, head_rule(exponent, false)), wide, exponent);
      mismatches.check(testing::code_bits(testing::wide_recipe_with_tail(wide, exponent)),
                       probability_code(score, row, head_rule(exponent, true)), wide, exponent);
    }
    EXPECT_EQ(mismatches.count, 0u) << mismatches;
  }
}

TEST(ProbabilityCode, WideDifferenceIsRoundedOnce) {
  // The contract subtracts in binary32 and rounds to binary16; a kernel rounds once.
  const std::vector<float> halves = testing::finite_halves(60000.0f);
  const std::size_t stride = testing::full_tests() ? 101 : 1009;
  const testing::Mismatches mismatches = testing::sweep(
      halves.size() / stride,
      [&](std::uint64_t begin, std::uint64_t end, testing::Mismatches& found) {
        for (std::uint64_t i = begin; i < end; ++i) {
          const std::size_t top = static_cast<std::size_t>(i) * stride;
          const double row_max = static_cast<double>(halves[top]);
          for (std::size_t s = 0; s <= top; ++s) {
            const double score = static_cast<double>(halves[s]);
            found.check(testing::wide_difference(score, row_max),
                        static_cast<double>(half_to_float(float_to_half(halves[s] - halves[top]))),
                        score, row_max);
          }
        }
      });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

TEST(ProbabilityCode, WholeRecipesOnRandomRows) {
  testing::Random random(15);
  const std::vector<float> halves = testing::finite_halves(60000.0f);
  const auto count = static_cast<std::int64_t>(halves.size());
  testing::Mismatches mismatches;
  for (int i = 0; i < 2'000'000; ++i) {
    const std::int64_t top = random.below(count);
    const std::int64_t other =
        i % 2 == 0 ? std::max<std::int64_t>(0, top - random.below(400)) : random.below(top + 1);
    const float row_max = halves[static_cast<std::size_t>(top)];
    const float score = halves[static_cast<std::size_t>(other)];
    const HeadRule rule = head_rule(static_cast<int>(random.below(32)), random.below(2) == 1);
    RowState row;
    raise_row_max(row, row_max, rule);
    double expected = 0.0;
    if (rule.wide()) {
      const double difference =
          testing::wide_difference(static_cast<double>(score), static_cast<double>(row_max));
      expected = rule.tail_correction
                     ? testing::wide_recipe_with_tail(difference, rule.score_exponent)
                     : testing::wide_recipe(difference, rule.score_exponent);
    } else {
      const double offset = static_cast<double>(row.offset);
      expected = rule.tail_correction
                     ? testing::recipe_with_tail(static_cast<double>(score), offset)
                     : testing::recipe(static_cast<double>(score), offset);
    }
    mismatches.check(testing::code_bits(expected), probability_code(score, row, rule),
                     static_cast<double>(score), static_cast<double>(row_max));
  }
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

TEST(ProbabilityCode, WideRowsRescaleLikeTheirCodes) {
  // Offsets of wide rows reach 2^47, far beyond exact integers. The factor between two of them must
  // still be that of the difference of the maxima.
  testing::Random random(16);
  const std::vector<float> halves = testing::finite_halves(60000.0f);
  for (int i = 0; i < 300000; ++i) {
    const HeadRule rule = head_rule(1 + static_cast<int>(random.below(31)), false);
    const std::int64_t low = random.below(static_cast<std::int64_t>(halves.size()) - 64);
    const std::int64_t high = low + 1 + random.below(63);
    RowState row;
    raise_row_max(row, halves[static_cast<std::size_t>(low)], rule);
    const float factor = raise_row_max(row, halves[static_cast<std::size_t>(high)], rule);
    const double difference = static_cast<double>(halves[static_cast<std::size_t>(low)]) -
                              static_cast<double>(halves[static_cast<std::size_t>(high)]);
    const double exact = std::exp2(std::ldexp(difference, rule.score_exponent) / 8.0);
    ASSERT_NEAR(static_cast<double>(factor), exact, 2e-6 * exact + 1e-38)
        << halves[static_cast<std::size_t>(low)] << ' ' << rule.score_exponent;
  }
}

}  // namespace
}  // namespace openvc::numerics
