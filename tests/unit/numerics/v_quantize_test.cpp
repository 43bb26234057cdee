// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/v_quantize.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "numerics/canonical_sum.hpp"
#include "unit/numerics/sweep.hpp"

namespace openvc::numerics {
namespace {

using Channel = std::vector<float>;

ChannelRange range_of(Channel values) {
  ChannelRange range;
  for (const float v : values) {
    range.max = std::max(range.max, v);
    range.min = std::min(range.min, v);
  }
  range.sum = sum_tree(static_cast<std::int64_t>(values.size()), [&](std::int64_t i) -> float& {
    return values[static_cast<std::size_t>(i)];
  });
  return range;
}

ChannelCode code_of(const Channel& values) {
  const ChannelRange range = range_of(values);
  const float mean = channel_mean(range, static_cast<std::int64_t>(values.size()));
  return channel_code(mean, channel_spread(range, mean), true);
}

std::uint8_t encode(float v, const ChannelCode& code) {
  return e4m3_encode(channel_coordinate(v, code));
}

/// mean + scale * code, in double: what a weighted average of bytes decodes to.
double reconstruct(float v, const ChannelCode& code) {
  return static_cast<double>(code.mean) +
         static_cast<double>(code.scale) * static_cast<double>(e4m3_decode(encode(v, code)));
}

TEST(VQuantize, ConstantChannelIsItsMean) {
  for (const std::size_t tokens : {1, 7, 128, 1000}) {
    for (const float constant : {0.0f, 1.0f, -3.5f, 100.0f, 65504.0f}) {
      const ChannelCode code = code_of(Channel(tokens, constant));
      EXPECT_EQ(code.mean, constant);
      EXPECT_EQ(code.scale, 0.0f);
      EXPECT_EQ(encode(constant, code) & 0x7F, 0);
      EXPECT_EQ(reconstruct(constant, code), static_cast<double>(constant));
    }
  }
}

TEST(VQuantize, ConstantWhoseMeanRoundsIsReconstructedAllTheSame) {
  for (const std::size_t tokens : {3, 1000, 75600}) {
    for (const float constant : {0.1f, -1.0f / 3.0f, 0x1.FFFFFEp99f, 0x1p-100f}) {
      const double found = reconstruct(constant, code_of(Channel(tokens, constant)));
      EXPECT_NEAR(found, static_cast<double>(constant), 1e-7 * std::fabs(constant)) << tokens;
    }
  }
}

TEST(VQuantize, ErrorIsHalfAUnitOfTheCode) {
  testing::Random random(1);
  for (int trial = 0; trial < 200; ++trial) {
    Channel values(500);
    const double offset = random.uniform(-3.0, 3.0);
    const double size = std::exp2(random.uniform(-60.0, 60.0));
    for (float& v : values) v = static_cast<float>(size * (random.normal() + offset));
    const ChannelCode code = code_of(values);
    double largest = 0.0;
    for (const float v : values) {
      const double distance = std::fabs(static_cast<double>(v) - static_cast<double>(code.mean));
      const double bound = std::max(distance / 17.0, static_cast<double>(code.scale) * 0x1p-10);
      ASSERT_LE(std::fabs(reconstruct(v, code) - static_cast<double>(v)), bound * (1.0 + 1e-5));
      largest = std::max(largest, std::fabs(static_cast<double>(channel_coordinate(v, code))));
    }
    EXPECT_NEAR(largest, static_cast<double>(kE4m3Max), 1e-3);
  }
}

TEST(VQuantize, MeanLeavesTheDistancesBalanced) {
  const ChannelRange range = range_of({1.0f, 2.0f, 6.0f, 3.0f});
  EXPECT_EQ(channel_mean(range, 4), 3.0f);
  EXPECT_EQ(channel_spread(range, 3.0f), 3.0f);
  EXPECT_EQ(channel_spread(range, 0.0f), 6.0f) << "without centring";
}

TEST(VQuantize, LargestInputs) {
  for (const float size : {kMaxCentredMagnitude, 0x1.FEp127f, 0x1.FFFFFEp127f}) {
    const Channel values{size, -size, size / 2, 0.0f, -size, -size, -size};
    const ChannelCode code = code_of(values);
    EXPECT_EQ(code.mean, 0.0f);
    EXPECT_GE(code.multiplier, 0x1p-126f);
    EXPECT_EQ(encode(size, code), kE4m3MaxCode);
    EXPECT_EQ(encode(-size, code), kE4m3MaxCode | 0x80);
    EXPECT_NEAR(reconstruct(size / 2, code) / static_cast<double>(size), 0.5, 1e-6);
  }
  // One step below, the mean is removed and nothing overflows.
  const float size = 0x1.FFFFFEp99f;
  const ChannelCode code = code_of(Channel(1 << 17, size));
  EXPECT_NEAR(static_cast<double>(code.mean / size), 1.0, 1e-6);
}

TEST(VQuantize, SmallestInputs) {
  // B03 of the field: values of 1e-30 must not become NaN or 0.
  const Channel tiny{1e-30f, -2e-30f, 3e-30f, 0.0f};
  const ChannelCode code = code_of(tiny);
  for (const float v : tiny) {
    EXPECT_NEAR(reconstruct(v, code), static_cast<double>(v), 2e-31) << v;
  }
  // Just below and at the limit from which a spread counts.
  EXPECT_EQ(channel_code(1.0f, 0x1.FFFFFEp-111f, true).multiplier, 0.0f);
  const ChannelCode smallest = channel_code(1.0f, kMinSpread, true);
  EXPECT_GE(smallest.scale, 0x1p-126f);
  EXPECT_LE(smallest.multiplier, 0x1.FFFFFEp127f);
  const Channel subnormal{0x1p-149f, -0x1p-140f};
  EXPECT_EQ(code_of(subnormal).multiplier, 0.0f);
  EXPECT_EQ(encode(0x1p-149f, code_of(subnormal)) & 0x7F, 0);
}

TEST(VQuantize, NonFiniteHeadsAreNanThroughout) {
  const ChannelCode code = channel_code(1.0f, 2.0f, false);
  EXPECT_EQ(float_bits(code.mean), kFloatQuietNanBits) << "the same bits on every backend";
  EXPECT_EQ(float_bits(code.scale), kFloatQuietNanBits);
  EXPECT_EQ(float_bits(code.multiplier), kFloatQuietNanBits);
  EXPECT_EQ(encode(1.0f, code), kE4m3Nan);
  EXPECT_EQ(encode(infinity(), code), kE4m3Nan);
}

/// Heads whose rows have norms up to `norm`, as V's plan sees them.
HeadStatistics values_with(float norm, float inside, float mean_square) {
  HeadStatistics head;
  head.value_extent.magnitude_bits = float_bits(norm / 4.0f);
  head.value_extent.row_sum_squares = norm * norm;
  head.value_axes = {inside, mean_square, 1};
  for (ChannelRange& range : head.values) range = {0.0f, norm / 4.0f, -norm / 4.0f};
  return head;
}

HeadPlan value_plan(const HeadStatistics& head, Choice choice = Choice::automatic) {
  NumericOptions options;
  options.value_axes = choice;
  HeadPlan plan;
  plan_values(head, 5'000, options, plan);
  return plan;
}

TEST(ValuesOnAxes, AreUsedWhereTheStrongestHoldEnough) {
  EXPECT_EQ(value_plan(values_with(10.0f, 0.5f, 20.0f)).values_on_axes, 1);
  EXPECT_EQ(value_plan(values_with(10.0f, 0.5f, 20.0f), Choice::never).values_on_axes, 0);
  EXPECT_EQ(value_plan(values_with(10.0f, 0.08f, 20.0f)).values_on_axes, 0) << "white";
  EXPECT_EQ(value_plan(values_with(10.0f, 0.08f, 20.0f), Choice::always).values_on_axes, 1);
  EXPECT_EQ(value_plan(values_with(10.0f, 0.5f, 1e-4f)).values_on_axes, 0) << "one long row";
  for (const Choice choice : {Choice::automatic, Choice::always}) {
    EXPECT_EQ(value_plan(values_with(2e4f, 0.5f, 1e8f), choice).values_on_axes, 0) << "large";
    EXPECT_EQ(value_plan(values_with(1e-20f, 0.5f, 1e-41f), choice).values_on_axes, 0) << "tiny";
    EXPECT_EQ(value_plan(values_with(infinity(), 0.5f, 1.0f), choice).values_on_axes, 0);
    EXPECT_EQ(value_plan(values_with(0.0f, 0.0f, 0.0f), choice).values_on_axes, 0) << "zeros";
    HeadStatistics unknown = values_with(10.0f, 0.5f, 20.0f);
    unknown.value_axes.known = 0;
    EXPECT_EQ(value_plan(unknown, choice).values_on_axes, 0) << "constant";
  }
}

TEST(ValuesOnAxes, ScaleTakesTheLongestRow) {
  for (float norm = 0.001f; norm < 2'000.0f; norm *= 1.37f) {
    const HeadPlan plan = value_plan(values_with(norm, 0.6f, norm * norm / 4.0f));
    ASSERT_EQ(plan.values_on_axes, 1) << norm;
    EXPECT_TRUE(plan.rule().values_on_axes());
    EXPECT_GE(plan.value_scales[3] * kE4m3Max, norm);
    EXPECT_LE(plan.value_scales[3] * kE4m3Max, 4.0f * norm) << "two binades at most";
    EXPECT_EQ(plan.value_scales[3] * plan.value_multipliers[3], 1.0f);
    EXPECT_FLOAT_EQ(plan.value_rounding.error, 0.026f * std::sqrt(0.4f));
  }
}

}  // namespace
}  // namespace openvc::numerics
