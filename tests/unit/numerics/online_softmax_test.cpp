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

float top_of(const Block& block) {
  float top = kLeastTop;
  for (const float score : block) {
    if (score > top) top = score;
  }
  return top;
}

RowState visit(const std::vector<Block>& blocks, const HeadRule& rule) {
  RowState row = empty_row(rule);
  for (const Block& block : blocks) {
    const BlockCast cast = begin_block(row, top_of(block), rule);
    float sum = 0.0f;
    for (const float score : block) sum += e4m3_decode(probability_code(score, cast, rule));
    end_block(row, cast, sum);
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

double row_log_sum_exp(const RowState& row, const HeadRule& rule) {
  return static_cast<double>(log_sum_exp(row, rule, std::log(row.sum), 0.0f));
}

HeadRule narrow_rule() { return head_rule(0, false); }
HeadRule wide_rule(int exponent) { return head_rule(exponent, true); }

/// Rules that scores counting 2^exponent code units may have.
std::vector<HeadRule> rules_of(int exponent) {
  if (exponent > 0) return {wide_rule(exponent)};
  return {narrow_rule(), wide_rule(0)};
}

// Extremes of decoded code over exact probability, relative to that of the block's largest score:
// see exp_cast_statistics_test.cpp; the anchor's own ratio spans an octave's eighth.
const double kLowestError = std::log(1.0 - 0.0796) - 0.0434;
const double kHighestError = std::log(1.0 + 0.0648) + 0.0434;

TEST(BlockOfRow, NarrowBlocksStandAlone) {
  RowState row = empty_row(narrow_rule());
  for (const float top : {10.0f, -300.0f, 510.5f, 0.25f}) {
    const BlockCast block = begin_block(row, top, narrow_rule());
    EXPECT_EQ(block.offset, block_offset(top));
    EXPECT_EQ(block.weight, exp2_code_units(top));
    EXPECT_EQ(block.rescale, 1.0f);
    EXPECT_EQ(probability_code(top, block, narrow_rule()), kPeakCode);
    end_block(row, block, 0.0f);
  }
  EXPECT_EQ(row.reference, 0.0f);
  EXPECT_EQ(row.sum, 0.0f);
}

TEST(BlockOfRow, WideBlocksMoveTheReferenceUpwards) {
  const HeadRule rule = wide_rule(1);
  RowState row = empty_row(rule);
  BlockCast block = begin_block(row, 10.0f, rule);
  EXPECT_EQ(block.weight, 1.0f);
  end_block(row, block, 448.0f);
  EXPECT_EQ(row.sum, 448.0f);
  block = begin_block(row, 6.0f, rule);
  EXPECT_EQ(block.rescale, 1.0f);
  EXPECT_EQ(block.weight, 0.5f);
  EXPECT_EQ(row.reference, 10.0f);
  block = begin_block(row, 14.0f, rule);
  EXPECT_EQ(block.rescale, 0.5f);
  EXPECT_EQ(block.weight, 1.0f);
  EXPECT_EQ(row.sum, 224.0f);
  EXPECT_EQ(row.reference, 14.0f);
}

TEST(BlockOfRow, TheLargestScoreOfEveryBlockIsExact) {
  testing::Random random(10);
  const std::vector<float> halves = testing::finite_halves(660.0f);
  for (const HeadRule& rule : rules_of(0)) {
    for (int i = 0; i < 20000; ++i) {
      const float top =
          halves[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(halves.size())))];
      const RowState row = visit({{top, -infinity()}}, rule);
      const double exact = static_cast<double>(top) * std::log(2.0) / 8.0;
      ASSERT_NEAR(row_log_sum_exp(row, rule), exact, 1e-6 * (1.0 + std::fabs(exact))) << top;
    }
  }
}

TEST(BlockOfRow, OrderOfBlocksOnlyMovesRoundingsOfTheSum) {
  testing::Random random(11);
  for (const int exponent : {0, 1, 3}) {
    for (const HeadRule& rule : rules_of(exponent)) {
      std::vector<Block> blocks(8);
      for (Block& block : blocks) {
        const double centre = random.uniform(-100.0, 100.0);
        for (int i = 0; i < 128; ++i) {
          block.push_back(as_half(std::ldexp(centre + 20.0 * random.normal(), -exponent)));
        }
      }
      const double reference = row_log_sum_exp(visit(blocks, rule), rule);
      for (int trial = 0; trial < 8; ++trial) {
        std::rotate(blocks.begin(), blocks.begin() + 1, blocks.end());
        ASSERT_NEAR(row_log_sum_exp(visit(blocks, rule), rule), reference, 4e-6);
      }
    }
  }
}

TEST(LogSumExp, StaysWithinTheErrorOfTheCodes) {
  testing::Random random(12);
  for (const int exponent : {0, 2, 6}) {
    for (const HeadRule& rule : rules_of(exponent)) {
      for (int trial = 0; trial < 40; ++trial) {
        std::vector<Block> blocks(6);
        for (Block& block : blocks) {
          const double centre = random.uniform(-50.0, 50.0);
          for (int i = 0; i < 128; ++i) {
            block.push_back(as_half(std::ldexp(centre + 10.0 * random.normal(), -exponent)));
          }
        }
        const double error =
            row_log_sum_exp(visit(blocks, rule), rule) - exact_log_sum_exp(blocks, exponent);
        ASSERT_GT(error, kLowestError);
        ASSERT_LT(error, kHighestError);
      }
    }
  }
}

TEST(LogSumExp, OfManyKeysIsWithinAHundredthOfANat) {
  // docs/numerics.md: a standard deviation of 0.002 to 0.003 nats, no bias. Normal scores of 1, 2
  // and 4 nats over 64 blocks.
  testing::Random random(13);
  for (const double deviation : {1.0, 2.0, 4.0}) {
    double squares = 0.0;
    double sum = 0.0;
    constexpr int kRows = 60;
    for (int r = 0; r < kRows; ++r) {
      std::vector<Block> blocks(64);
      for (Block& block : blocks) {
        for (int i = 0; i < 128; ++i) {
          block.push_back(as_half(deviation * 8.0 / std::log(2.0) * random.normal()));
        }
      }
      const double error = row_log_sum_exp(visit(blocks, narrow_rule()), narrow_rule()) -
                           exact_log_sum_exp(blocks, 0);
      squares += error * error;
      sum += error;
    }
    EXPECT_LE(std::sqrt(squares / kRows), 0.005) << deviation;
    EXPECT_LE(std::fabs(sum / kRows), 0.0025) << deviation;
  }
}

TEST(LogSumExp, LargeTopsAndRisesOfTheReference) {
  // Tops beyond +-1,925, where offsets alone would no longer be exact, and rises far beyond what
  // binary32 holds between two blocks.
  for (const int exponent : {0, 1, 7}) {
    const HeadRule rule = wide_rule(exponent);
    for (const std::vector<float>& tops : {std::vector<float>{-40000.0f, -1926.0f, -500.0f, 0.0f,
                                                              1027.0f, 1926.0f, 3001.0f, 60000.0f},
                                           std::vector<float>{60000.0f, 1926.0f, -60000.0f},
                                           std::vector<float>{-60000.0f, 60000.0f, 59968.0f}}) {
      std::vector<Block> blocks;
      for (const float top : tops) {
        Block block(128, -infinity());
        block[3] = top;
        block[77] = as_half(top - 33.0);
        blocks.push_back(block);
        const RowState row = visit(blocks, rule);
        const double exact = exact_log_sum_exp(blocks, exponent);
        ASSERT_NEAR(row_log_sum_exp(row, rule), exact, 0.01 + 1e-6 * std::fabs(exact)) << top;
      }
    }
  }
}

TEST(LogSumExp, SmoothingShiftIsAdded) {
  for (const HeadRule& rule : rules_of(0)) {
    const RowState row = visit({{3.0f, 1.0f, -2.0f}}, rule);
    EXPECT_FLOAT_EQ(log_sum_exp(row, rule, std::log(row.sum), 2.5f),
                    log_sum_exp(row, rule, std::log(row.sum), 0.0f) + 2.5f);
  }
}

TEST(LogSumExp, ExcessScalesTheScoreAndTheShiftAlone) {
  // One key at the maximum: its logit is that of the score, within binary32.
  for (const float score : {-3.0f, -0x1p-24f, 0.0f, 0x1p-24f, 1.5f, 40000.0f}) {
    for (int excess = 1; excess <= kMaxExcessExponent; ++excess) {
      const HeadRule rule = head_rule(kMaxScoreExponent, true, 0, excess);
      const RowState row = visit({{score}}, rule);
      for (const float shift : {0.0f, -0.25f * score}) {
        const double unit = std::ldexp(std::log(2.0) / 8.0, kMaxScoreExponent);
        const double scaled = static_cast<double>(score) * unit + static_cast<double>(shift);
        const double exact = std::ldexp(scaled, excess);
        const float actual = log_sum_exp(row, rule, std::log(row.sum), shift);
        if (std::fabs(exact) > 1.0001 * static_cast<double>(kFloatMax)) {
          ASSERT_EQ(actual, exact > 0.0 ? infinity() : -infinity()) << score << ' ' << excess;
        } else if (std::fabs(exact) < 0.9999 * static_cast<double>(kFloatMax)) {
          ASSERT_NEAR(static_cast<double>(actual), exact, 1e-5 + 1e-6 * std::fabs(exact))
              << score << ' ' << excess;
        }
      }
    }
  }
}

TEST(LogSumExp, RowsWithoutKeysAndRowsOfNan) {
  for (const HeadRule& rule : {narrow_rule(), wide_rule(0), wide_rule(5)}) {
    const RowState masked = visit({{-infinity(), -infinity()}, {-infinity()}}, rule);
    EXPECT_EQ(masked.sum, 0.0f);
    EXPECT_EQ(log_sum_exp(masked, rule, std::log(masked.sum), 1.0f), -infinity());

    for (const Block& poison : {Block{quiet_nan(), -infinity()}, Block{quiet_nan(), 3.0f}}) {
      const RowState poisoned = visit({{1.0f}, poison}, rule);
      EXPECT_TRUE(std::isnan(poisoned.sum));
      EXPECT_TRUE(std::isnan(log_sum_exp(poisoned, rule, std::log(poisoned.sum), 0.0f)));
    }

    const RowState seen = visit({{-7.0f, -infinity()}}, rule);
    const RowState masked_then_seen = visit({{-infinity()}, {-7.0f, -infinity()}}, rule);
    EXPECT_GT(masked_then_seen.sum, 0.0f);
    EXPECT_EQ(masked_then_seen.sum, seen.sum);
    EXPECT_EQ(masked_then_seen.reference, seen.reference);
    const RowState seen_then_masked = visit({{-7.0f, -infinity()}, {-infinity()}}, rule);
    EXPECT_EQ(seen_then_masked.sum, seen.sum);
  }
}

TEST(NarrowHeads, KeepTheLargestPossibleSumsFinite) {
  // The largest score that rounding and residual columns leave, in every one of the most keys.
  const float top = as_half(kNarrowScoreLimit * 1.27);
  const float weight = exp2_code_units(top);
  const double largest = static_cast<double>(weight) * static_cast<double>(kE4m3Max) *
                         static_cast<double>(kE4m3Max) * static_cast<double>(kNarrowMaxKeys);
  EXPECT_LT(largest, static_cast<double>(kFloatMax));
  EXPECT_GT(static_cast<double>(exp2_code_units(-top)), 0x1p-126 * 0x1p24);
}

TEST(ProbabilityCode, NeverExceedsThePeakInAnyRange) {
  testing::Random random(14);
  for (int exponent = 0; exponent <= 31; ++exponent) {
    for (const HeadRule& rule : rules_of(exponent)) {
      const std::vector<float> halves = testing::finite_halves(rule.wide() ? 65504.0f : 700.0f);
      const auto count = static_cast<std::int64_t>(halves.size());
      for (int i = 0; i < 20000; ++i) {
        const std::int64_t top = random.below(count);
        const std::int64_t other =
            i % 4 == 0 ? std::max<std::int64_t>(0, top - random.below(40)) : random.below(top + 1);
        RowState row = empty_row(rule);
        const BlockCast block = begin_block(row, halves[static_cast<std::size_t>(top)], rule);
        ASSERT_LE(probability_code(halves[static_cast<std::size_t>(other)], block, rule),
                  kPeakCode);
        ASSERT_EQ(probability_code(block.top, block, rule), kPeakCode);
      }
    }
  }
}

TEST(ProbabilityCode, WideRecipeGivesTheBytesOfTheContract) {
  // With the top 0 a score is its own difference: all differences and exponents.
  for (int exponent = 0; exponent <= 31; ++exponent) {
    const BlockCast block{.top = 0.0f};
    testing::Mismatches mismatches;
    for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
      const float score = half_to_float(static_cast<std::uint16_t>(bits));
      if (score > 0.0f || std::isnan(score)) continue;
      const double wide = static_cast<double>(score);
      mismatches.check(testing::code_bits(testing::wide_recipe(wide, exponent)),
                       probability_code(score, block, wide_rule(exponent)), wide, exponent);
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
          const std::size_t index = static_cast<std::size_t>(i) * stride;
          const double top = static_cast<double>(halves[index]);
          for (std::size_t s = 0; s <= index; ++s) {
            const double score = static_cast<double>(halves[s]);
            found.check(
                testing::wide_difference(score, top),
                static_cast<double>(half_to_float(float_to_half(halves[s] - halves[index]))), score,
                top);
          }
        }
      });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

}  // namespace
}  // namespace openvc::numerics
