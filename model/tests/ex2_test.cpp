// SPDX-License-Identifier: BSD-3-Clause
#include "machine/ex2.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>

#include "numerics/bits.hpp"
#include "numerics/half.hpp"

// ex2.approx of the model against the counts of an H200 (benchmarks/cuda/ex2_rounding.cu).
namespace openvc::model {
namespace {

float nearest(float x) { return static_cast<float>(std::exp2(static_cast<double>(x))); }

std::int64_t units_above_nearest(float x) {
  return std::int64_t{numerics::float_bits(ex2(x))} - numerics::float_bits(nearest(x));
}

TEST(ModelEx2, WeightsOfNarrowHeadsAreAnH200s) {
  constexpr int kHalves = 1 << 16;
  constexpr float kLeastNormal = -126.0f;
  std::map<std::int64_t, int> counts;
  for (int i = 0; i < kHalves; ++i) {
    const float x = numerics::half_to_float(static_cast<std::uint16_t>(i)) / 8;
    if (!numerics::is_finite(x) || x < kLeastNormal || x >= 128) continue;
    ++counts[units_above_nearest(x)];
  }
  const std::map<std::int64_t, int> of_the_card{{-2, 867}, {-1, 17456}, {0, 0}, {1, 9738}};
  for (const auto& [units, count] : of_the_card) {
    if (units != 0) EXPECT_EQ(counts[units], count) << units;
  }
  EXPECT_EQ(counts.size(), of_the_card.size());
}

TEST(ModelEx2, FlushesAndOverflows) {
  EXPECT_EQ(ex2(-126.5f), 0.0f);
  EXPECT_EQ(ex2(-300.0f), 0.0f);
  EXPECT_EQ(ex2(128.0f), numerics::infinity());
  EXPECT_EQ(ex2(-numerics::infinity()), 0.0f);
  EXPECT_TRUE(std::isnan(ex2(numerics::quiet_nan())));
}

TEST(ModelEx2, OtherArgumentsAreRoundedToNearest) {
  for (const float x : {-0.3f, -1.0001f, -77.7f}) EXPECT_EQ(ex2(x), nearest(x)) << x;
}

}  // namespace
}  // namespace openvc::model
