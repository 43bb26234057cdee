// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/score_scale.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "numerics/canonical_sum.hpp"
#include "numerics/qk_quantize.hpp"
#include "unit/numerics/oracles.hpp"
#include "unit/numerics/sweep.hpp"

namespace openvc::numerics {
namespace {

using Row = std::vector<float>;

Extent extent_of(const Row& row) {
  Extent extent;
  for (const float x : row) {
    extent.magnitude_bits = std::max(extent.magnitude_bits, magnitude_bits(x));
  }
  extent.row_sum_squares = row_sum_squares([&](int c) { return row[static_cast<std::size_t>(c)]; });
  return extent;
}

long double exact_squared_norm(const Row& row) {
  long double sum = 0.0L;
  for (const float x : row) sum += static_cast<long double>(x) * x;
  return sum;
}

// Exponents h of the squared norm that finite, non-zero extents can have, rotated or not.
constexpr int kLowestH = -244;
constexpr int kHighestH = 264;

TEST(ScoreScale, ExponentsKeepTheirPromises) {
  for (int query_h = kLowestH; query_h <= kHighestH; ++query_h) {
    for (int key_h = kLowestH; key_h <= kHighestH; ++key_h) {
      const ScoreScale scale = score_scale(query_h, key_h);
      const int total = scale.query_exponent + scale.key_exponent;
      ASSERT_GE(scale.score_exponent, 0);
      ASSERT_LE(scale.score_exponent, kMaxScoreExponent);
      if (scale.score_exponent < kMaxScoreExponent) {
        ASSERT_EQ(total, scale.score_exponent) << query_h << ' ' << key_h;
      } else {
        ASSERT_GE(total, kMaxScoreExponent) << query_h << ' ' << key_h;
      }
      ASSERT_EQ(scale.excess_exponent, std::min(total - scale.score_exponent, kMaxExcessExponent));
      // |q| |k| <= 2^15.5 after scaling, by no more than a factor of two less than allowed.
      ASSERT_LE(query_h + key_h - 2 * total, kTwiceLog2ScoreLimit) << query_h << ' ' << key_h;
      if (total > 0) {
        ASSERT_GE(query_h + key_h - 2 * total, kTwiceLog2ScoreLimit - 1) << query_h << ' ' << key_h;
      }
      for (const int exponent : {scale.query_exponent, scale.key_exponent}) {
        ASSERT_GE(-exponent, kFloatMinNormalExponent) << query_h << ' ' << key_h;
        ASSERT_LE(-exponent, kFloatMaxExponent) << query_h << ' ' << key_h;
      }
    }
  }
}

TEST(ScoreScale, SumOfExponentsHoldsForEveryGain) {
  // Q's h contains the gain twice, and its multiplier once. The gain's mantissa is below 4.
  for (int gain = -126; gain <= 126; gain += 7) {
    for (int query_h = kLowestH + 2 * gain; query_h <= kHighestH + 2 * gain + 4; query_h += 3) {
      for (int key_h = kLowestH; key_h <= kHighestH; key_h += 3) {
        const ScoreScale scale = score_scale(query_h, key_h, gain);
        const int total = scale.query_exponent + scale.key_exponent;
        ASSERT_EQ(std::min(total, kMaxScoreExponent), scale.score_exponent);
        ASSERT_LE(query_h + key_h - 2 * total, kTwiceLog2ScoreLimit);
        ASSERT_GE(gain - scale.query_exponent, kMinMultiplierExponent);
        ASSERT_LE(gain - scale.query_exponent, kMaxMultiplierExponent);
        ASSERT_GE(-scale.key_exponent, kMinMultiplierExponent);
        ASSERT_LE(-scale.key_exponent, kMaxMultiplierExponent);
      }
    }
  }
}

TEST(ScoreScale, BothTensorsSitEquallyFarBelowTheLimitOfE4m3) {
  // Norms, hence elements, end below 448: nothing saturates. Inputs so unequal that a multiplier
  // reaches the end of binary32 are left out.
  for (int query_h = -200; query_h <= 200; ++query_h) {
    for (int key_h = -200; key_h <= 200; ++key_h) {
      const ScoreScale scale = score_scale(query_h, key_h);
      const double query_norm = std::exp2(query_h / 2.0 - scale.query_exponent);
      const double key_norm = std::exp2(key_h / 2.0 - scale.key_exponent);
      ASSERT_LE(query_norm, static_cast<double>(kE4m3Max)) << query_h << ' ' << key_h;
      ASSERT_LE(key_norm, static_cast<double>(kE4m3Max)) << query_h << ' ' << key_h;
      ASSERT_LE(std::fabs(std::log2(query_norm / key_norm)), 2.0) << query_h << ' ' << key_h;
    }
  }
}

TEST(SquaredNormExponent, BoundsTheNorm) {
  testing::Random random(5);
  for (int trial = 0; trial < 20000; ++trial) {
    Row row(kHeadDim, 0.0f);
    const double size = random.uniform(-149.0, 127.0);
    const std::int64_t used = trial % 3 == 0 ? 1 : 1 + random.below(kHeadDim);
    for (std::int64_t c = 0; c < used; ++c) {
      row[static_cast<std::size_t>(c)] =
          static_cast<float>(std::exp2(size) * random.uniform(-1.9, 1.9));
    }
    const Extent extent = extent_of(row);
    if (extent.magnitude_bits == 0) continue;
    const int h = squared_norm_exponent(extent);
    const long double norm = exact_squared_norm(row);
    // The sum of squares itself is rounded, by a few units in 2^24; kTwiceLog2ScoreLimit has room.
    ASSERT_LE(norm, std::exp2(static_cast<long double>(h)) * (1.0L + 0x1p-20L)) << trial;
    // 2^-126 stands for every subnormal number, whose norm may be far smaller.
    if (extent.magnitude() >= 0x1p-126f) {
      ASSERT_GE(norm, std::exp2(static_cast<long double>(h) - (has_safe_squares(extent) ? 1 : 9)) *
                          (1.0L - 0x1p-20L))
          << trial;
    }
  }
}

TEST(SquaredNormExponent, Extremes) {
  EXPECT_EQ(squared_norm_exponent(extent_of(Row(kHeadDim, kBfloat16Max))), 263);
  EXPECT_EQ(squared_norm_exponent(extent_of(Row(kHeadDim, 0x1p-149f))), -243);
  EXPECT_EQ(squared_norm_exponent(extent_of(Row(kHeadDim, 1.0f))), 8);
  Row single(kHeadDim, 0.0f);
  single[5] = -1.0f;
  EXPECT_EQ(squared_norm_exponent(extent_of(single)), 1);
  // Both rules meet without a gap.
  for (const int exponent :
       {kMinSafeExponent - 1, kMinSafeExponent, kMaxSafeExponent, kMaxSafeExponent + 1}) {
    const int h = squared_norm_exponent(extent_of(Row(kHeadDim, exp2_int(exponent))));
    EXPECT_GE(h, 2 * exponent + 8);
    EXPECT_LE(h, 2 * exponent + 9);
  }
}

/// S of the scaled rows as a kernel accumulates it: binary16 after every product, residual columns
/// of the first `residual_channels` channels included, largest partial sum on the way.
double largest_partial_sum(const Row& q, const Row& k, const ScoreScale& scale,
                           int residual_channels) {
  const auto value = [](std::uint8_t code) { return static_cast<double>(e4m3_decode(code)); };
  std::vector<double> products;
  for (std::size_t c = 0; c < q.size(); ++c) {
    const Quantized a = quantize(q[c], exp2_int(-scale.query_exponent));
    const Quantized b = quantize(k[c], exp2_int(-scale.key_exponent));
    products.push_back(value(a.code) * value(b.code));
    if (static_cast<int>(c) < residual_channels) {
      products.push_back(value(encode_low(a)) * value(encode_high(b)));
      products.push_back(value(encode_high(a)) * value(encode_low(b)));
    }
  }
  // All of one sign first is the worst order.
  std::sort(products.rbegin(), products.rend());
  double sum = 0.0;
  double largest = 0.0;
  for (const double product : products) {
    sum = testing::round_to_half(sum + product);
    largest = std::max(largest, std::fabs(sum));
  }
  return largest;
}

TEST(ScoreScale, NoAccumulatedScoreOverflows) {
  // Worst cases: parallel rows at the limit of the norms whose significands all round up most,
  // just above the tie at 17/16; few or many channels; and random rows.
  testing::Random random(6);
  double largest = 0.0;
  for (int trial = 0; trial < 20000; ++trial) {
    const auto used = static_cast<std::size_t>(trial % 4 == 0 ? 1 << random.below(8)
                                                              : 1 + random.below(kHeadDim));
    const double size = std::exp2(static_cast<double>(random.below(80) - 20));
    const double significand = trial % 2 == 0 ? 1.0625001 : random.uniform(1.0, 2.0);
    Row q(kHeadDim, 0.0f);
    for (std::size_t c = 0; c < used; ++c) {
      const double x = trial % 3 == 0 ? random.normal() : significand;
      q[c] = static_cast<float>(size * x);
    }
    const double ratio = trial % 2 == 0 ? std::exp2(static_cast<double>(random.below(40) - 20))
                                        : random.uniform(0.5, 2.0);
    Row k = q;
    for (float& x : k) x = static_cast<float>(ratio * static_cast<double>(x));
    const Extent query = extent_of(q);
    const Extent key = extent_of(k);
    if (query.magnitude_bits == 0) continue;
    const ScoreScale scale = score_scale(squared_norm_exponent(query), squared_norm_exponent(key));
    for (const int residual_channels : {0, 64}) {
      const double sum = largest_partial_sum(q, k, scale, residual_channels);
      ASSERT_LE(sum, static_cast<double>(kHalfMax)) << trial;
      largest = std::max(largest, sum);
    }
  }
  EXPECT_GT(largest, 45000.0) << "the worst cases should come near the limit";
}

TEST(ScoreScale, LargestInputsNeitherOverflowNorSaturateDifferently) {
  for (const float size : {kBfloat16Max, kHalfMax, 0x1p-133f, 1.0f}) {
    Row q(kHeadDim, size);
    for (std::size_t c = 0; c < q.size(); c += 2) q[c] = -size / 2;
    const int h = squared_norm_exponent(extent_of(q));
    const ScoreScale scale = score_scale(h, h);
    EXPECT_LE(largest_partial_sum(q, q, scale, 64), static_cast<double>(kHalfMax)) << size;
    const std::uint8_t large = e4m3_encode(q[1] * exp2_int(-scale.query_exponent));
    const std::uint8_t small = e4m3_encode(q[0] * exp2_int(-scale.query_exponent));
    if (size < 0x1p-126f) continue;  // vanishes, like its scores
    EXPECT_EQ(e4m3_decode(large), -2.0f * e4m3_decode(small)) << size;
  }
}

TEST(QueryGain, IsInCodeUnits) {
  const double softmax_scale = 1.0 / std::sqrt(static_cast<double>(kHeadDim));
  EXPECT_NEAR(static_cast<double>(query_gain(static_cast<float>(softmax_scale))),
              8.0 / std::log(2.0) * softmax_scale, 1e-7);
  EXPECT_NEAR(static_cast<double>(kCodeUnitsPerNat), 8.0 / std::log(2.0), 1e-6);
}

}  // namespace
}  // namespace openvc::numerics
