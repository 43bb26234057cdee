// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/qk_quantize.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "unit/numerics/oracles.hpp"
#include "unit/numerics/sweep.hpp"

namespace openvc::numerics {
namespace {

using Row = std::vector<float>;

double value(std::uint8_t code) { return static_cast<double>(e4m3_decode(code)); }

TEST(Quantize, SplitsIntoValueAndExactResidual) {
  testing::Random random(1);
  for (int i = 0; i < 200000; ++i) {
    const auto x = static_cast<float>(random.normal() * std::exp2(random.uniform(-6.0, 4.0)));
    const float multiplier = exp2_int(static_cast<int>(random.below(5)) - 2);
    const Quantized quantized = quantize(x, multiplier);
    const double scaled = static_cast<double>(x) * static_cast<double>(multiplier);
    ASSERT_EQ(static_cast<double>(quantized.value),
              testing::round_to_format(scaled, testing::kE4m3));
    ASSERT_EQ(quantized.value, e4m3_decode(quantized.code));
    ASSERT_EQ(static_cast<double>(quantized.residual),
              scaled - static_cast<double>(quantized.value));
    // Half a unit in the last place of three mantissa bits, or of the subnormal grid.
    ASSERT_LE(std::fabs(quantized.residual),
              std::max(std::fabs(quantized.value) / 16.0f, 0x1p-10f));
  }
}

TEST(Quantize, ColumnBytesAreBalanced) {
  // The product of the two columns' scales is one.
  const Quantized x = quantize(1.0f + 1.0f / 32.0f, 1.0f);
  EXPECT_EQ(x.value, 1.0f);
  EXPECT_EQ(x.residual, 1.0f / 32.0f);
  EXPECT_EQ(e4m3_decode(encode_low(x)), 1.0f / 8.0f);
  EXPECT_EQ(e4m3_decode(encode_high(x)), 1.0f / 4.0f);
  // Values down to 2^-4 keep all their bits in the high column.
  for (int code = 0x18; code <= kE4m3MaxCode; ++code) {
    const float v = e4m3_decode(static_cast<std::uint8_t>(code));
    EXPECT_EQ(e4m3_decode(encode_high(quantize(v, 1.0f))), v / 4.0f) << code;
    EXPECT_EQ(e4m3_decode(encode_low(quantize(v, 1.0f))), 0.0f) << code;
  }
}

TEST(Quantize, NanMultiplierPoisonsEveryByte) {
  for (const float x : {0.0f, 1.0f, -1e30f, infinity()}) {
    const Quantized quantized = quantize(x, quiet_nan());
    EXPECT_EQ(quantized.code & 0x7F, kE4m3Nan);
    EXPECT_EQ(encode_low(quantized) & 0x7F, kE4m3Nan);
    EXPECT_EQ(encode_high(quantized) & 0x7F, kE4m3Nan);
  }
}

TEST(ResidualColumns, EachOfTheStepMeetsItsPartner) {
  std::vector<int> query(kColumnsPerStep, -1);
  std::vector<int> key(kColumnsPerStep, -1);
  for (int position = 0; position < kResidualChannelsPerStep; ++position) {
    EXPECT_EQ(query_low_column(position), key_high_column(position));
    EXPECT_EQ(query_high_column(position), key_low_column(position));
    query[static_cast<std::size_t>(query_low_column(position))] = position;
    query[static_cast<std::size_t>(query_high_column(position))] = position;
    key[static_cast<std::size_t>(key_low_column(position))] = position;
    key[static_cast<std::size_t>(key_high_column(position))] = position;
  }
  for (int column = 0; column < kColumnsPerStep; ++column) {
    EXPECT_GE(query[static_cast<std::size_t>(column)], 0) << column;
    EXPECT_EQ(query[static_cast<std::size_t>(column)], key[static_cast<std::size_t>(column)]);
  }
}

/// q.k from the bytes: the main columns and the residual columns of the first `covered` channels.
double quantized_dot(const Row& q, const Row& k, int covered) {
  double sum = 0.0;
  for (std::size_t c = 0; c < q.size(); ++c) {
    const Quantized a = quantize(q[c], 1.0f);
    const Quantized b = quantize(k[c], 1.0f);
    sum += value(a.code) * value(b.code);
    if (static_cast<int>(c) < covered) {
      sum += value(encode_low(a)) * value(encode_high(b)) +
             value(encode_high(a)) * value(encode_low(b));
    }
  }
  return sum;
}

double exact_dot(const Row& q, const Row& k) {
  double sum = 0.0;
  for (std::size_t c = 0; c < q.size(); ++c) {
    sum += static_cast<double>(q[c]) * static_cast<double>(k[c]);
  }
  return sum;
}

TEST(ResidualColumns, ErrorFallsAsPredicted) {
  // Sixteen strong channels carry 8 times the amplitude of the others. Predicted variance of S:
  // E[q^2] E[k^2] times 2 e^2 for a channel without residual columns, one term for each factor, and
  // times 3 e^4 for one with them: the product of the two residuals, and the rounding of each
  // residual. e = 0.026 is the relative rounding error of E4M3.
  constexpr double kRelativeError = 0.026;
  constexpr double kStrong = 8.0;
  testing::Random random(3);
  const auto random_row = [&] {
    Row row(kHeadDim);
    for (std::size_t c = 0; c < row.size(); ++c) {
      row[c] = static_cast<float>(random.normal() * (c < 16 ? kStrong : 1.0));
    }
    return row;
  };
  for (const int covered : {0, 16, 32, 64, kHeadDim}) {
    double sum_squares = 0.0;
    constexpr int kTrials = 4000;
    for (int trial = 0; trial < kTrials; ++trial) {
      const Row q = random_row();
      const Row k = random_row();
      sum_squares += std::pow(quantized_dot(q, k, covered) - exact_dot(q, k), 2);
    }
    const double measured = std::sqrt(sum_squares / kTrials);
    const double square = kRelativeError * kRelativeError;
    double variance = 0.0;
    for (int c = 0; c < kHeadDim; ++c) {
      const double energy = std::pow(c < 16 ? kStrong : 1.0, 4);
      variance += energy * (c < covered ? 3.0 * square * square : 2.0 * square);
    }
    const double predicted = std::sqrt(variance);
    EXPECT_GT(measured, 0.8 * predicted) << covered;
    EXPECT_LT(measured, 1.2 * predicted) << covered;
  }
}

}  // namespace
}  // namespace openvc::numerics
