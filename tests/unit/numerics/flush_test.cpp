// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/flush.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace openvc::numerics {
namespace {

TEST(Flush, SamplesAreEvenlySpaced) {
  EXPECT_EQ(flush_sample_count(3), 3);
  EXPECT_EQ(flush_sample_query(2, 3), 2);
  EXPECT_EQ(flush_sample_count(75'600), kFlushSamples);
  EXPECT_EQ(flush_sample_query(0, 75'600), 0);
  EXPECT_EQ(flush_sample_query(128, 75'600), 37'800);
  EXPECT_LT(flush_sample_query(kFlushSamples - 1, std::int64_t{1} << 40), std::int64_t{1} << 40);
}

TEST(Flush, LogOfCount) {
  for (std::int64_t n : {1, 2, 3, 7, 300, 10'080, 75'600, 1 << 26}) {
    EXPECT_NEAR(log_of_count(n), std::log(static_cast<double>(n)), 2e-5) << n;
  }
}

TEST(Flush, NormalDistribution) {
  for (float z = -40.0f; z <= 40.0f; z += 0.03125f) {
    EXPECT_NEAR(normal_cdf(z), 0.5 * std::erfc(-z / std::sqrt(2.0)), 2e-4) << z;
  }
  EXPECT_EQ(normal_cdf(-1e30f), 0.0f);
  EXPECT_EQ(normal_cdf(1e30f), 1.0f);
}

/// The same model in double precision, written with the textbook functions.
double exact_row_flush(double deviation, double log_keys, double own) {
  const double range = (kPeakCode - 0.5) * std::log(2.0) / 8.0;
  const double top = std::max(own, deviation * std::sqrt(2.0 * log_keys));
  const double z = (top - range) / deviation - deviation;
  const double bulk = std::exp(log_keys + deviation * deviation / 2.0 - top);
  return bulk / (bulk + 1.0) * 0.5 * std::erfc(-z / std::sqrt(2.0));
}

TEST(Flush, RowsFollowTheModel) {
  FlushModel model;
  model.code_gain = 1.0f;
  for (const double keys : {300.0, 10'080.0, 75'600.0, 1e6}) {
    model.log_keys = log_of_count(static_cast<std::int64_t>(keys));
    for (double deviation = 0.01; deviation < 8.0; deviation *= 1.1) {
      for (const double own : {-std::numeric_limits<double>::infinity(), 0.0, 8.0, 12.0, 16.0}) {
        model.variance_per_square = 1.0f;
        const auto square = static_cast<float>(deviation * deviation);
        EXPECT_NEAR(row_flush(model, square, static_cast<float>(own)),
                    exact_row_flush(deviation, std::log(keys), own), 3e-4)
            << keys << " " << deviation << " " << own;
      }
    }
  }
}

TEST(Flush, GrowsWithTheNumberOfKeysOfAPeakedRow) {
  FlushModel model;
  model.code_gain = 1.0f;
  model.variance_per_square = 1.0f;
  float last = -1.0f;
  for (const std::int64_t keys : {1'000, 10'000, 100'000, 1'000'000}) {
    model.log_keys = log_of_count(keys);
    const float flush = row_flush(model, 1.0f, 13.0f);
    EXPECT_GT(flush, last);
    last = flush;
  }
  EXPECT_GT(last, kFlushLimit);
}

TEST(Flush, NothingForZeroOrHugeHeads) {
  ScoreStatistics statistics;
  const float means[kHeadDim] = {};
  EXPECT_EQ(flush_model(statistics, means, 10, 10, 0.1f).variance_per_square, 0.0f);
  statistics.query.magnitude_bits = float_bits(3e38f);
  statistics.key.magnitude_bits = float_bits(1.0f);
  const FlushModel model = flush_model(statistics, means, 10, 10, 0.1f);
  const float flush = row_flush(model, std::numeric_limits<float>::infinity(), 1.0f);
  EXPECT_FALSE(flush > 0.0f) << flush;
}

TEST(Flush, RmsOverTheSamples) {
  std::vector<float> flushes(kFlushSamples, 0.0f);
  flushes[0] = 0.3f;
  flushes[1] = 0.4f;
  EXPECT_FLOAT_EQ(flush_rms(flushes.data(), 2), std::sqrt(0.125f));
}

}  // namespace
}  // namespace openvc::numerics
