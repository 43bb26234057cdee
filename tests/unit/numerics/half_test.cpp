// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/half.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "unit/numerics/oracles.hpp"
#include "unit/numerics/sweep.hpp"

namespace openvc::numerics {
namespace {

double defined_half(std::uint32_t bits) {
  const int exponent = static_cast<int>((bits >> 10) & 0x1F);
  const int mantissa = static_cast<int>(bits & 0x3FF);
  const double size = exponent == 0 ? mantissa * std::pow(2.0, -24)
                                    : std::pow(2.0, exponent - 15) * (1.0 + mantissa / 1024.0);
  return (bits & 0x8000u) != 0 ? -size : size;
}

TEST(Oracle, RoundsToMultiplesOfTheQuantum) {
  // The oracle of these tests against a slower and plainer one.
  for (const testing::Format& format : {testing::kBinary16, testing::kBfloat16, testing::kE4m3}) {
    testing::Mismatches mismatches;
    testing::for_stratified_floats(20, [&](float x) {
      const double wide = static_cast<double>(x);
      if (!(std::fabs(wide) < format.overflow) || wide == 0.0) return;
      const int quantum = std::max(std::ilogb(wide) - format.precision + 1, format.min_quantum);
      const double expected = std::ldexp(std::nearbyint(std::ldexp(wide, -quantum)), quantum);
      mismatches.check(expected, testing::round_to_format(wide, format), wide);
    });
    EXPECT_EQ(mismatches.count, 0u) << mismatches;
  }
}

TEST(Half, DecodesEveryPatternByDefinition) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const float value = half_to_float(static_cast<std::uint16_t>(bits));
    if ((bits & 0x7C00u) == 0x7C00u) {
      EXPECT_EQ(std::isinf(value), (bits & 0x3FFu) == 0) << bits;
      EXPECT_EQ(std::isnan(value), (bits & 0x3FFu) != 0) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value), defined_half(bits)) << bits;
    }
    EXPECT_EQ(std::signbit(value), (bits & 0x8000u) != 0) << bits;
  }
}

TEST(Half, EveryPatternSurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto pattern = static_cast<std::uint16_t>(bits);
    const std::uint16_t half = float_to_half(half_to_float(pattern));
    if (testing::is_half_nan(pattern)) {
      EXPECT_TRUE(testing::is_half_nan(half)) << bits;
    } else {
      ASSERT_EQ(half, pattern);
    }
    const std::uint16_t bfloat16 = float_to_bfloat16(bfloat16_to_float(pattern));
    if ((bits & 0x7FFFu) > 0x7F80u) {
      EXPECT_GT(bfloat16 & 0x7FFFu, 0x7F80u) << bits;
    } else {
      ASSERT_EQ(bfloat16, pattern);
    }
  }
}

TEST(Half, RoundsStratifiedFloatsByValue) {
  testing::Mismatches half;
  testing::Mismatches bfloat16;
  testing::for_stratified_floats(testing::full_tests() ? 20000 : 500, [&](float x) {
    const double wide = static_cast<double>(x);
    half.check(testing::round_to_format(wide, testing::kBinary16),
               static_cast<double>(half_to_float(float_to_half(x))), wide);
    half.check(std::signbit(x), float_to_half(x) >> 15, wide);
    bfloat16.check(testing::round_to_format(wide, testing::kBfloat16),
                   static_cast<double>(bfloat16_to_float(float_to_bfloat16(x))), wide);
    bfloat16.check(std::signbit(x), float_to_bfloat16(x) >> 15, wide);
  });
  EXPECT_EQ(half.count, 0u) << half;
  EXPECT_EQ(bfloat16.count, 0u) << bfloat16;
}

#if defined(__FLT16_MANT_DIG__)
TEST(Half, RoundsLikeTheCompiler) {
  testing::Mismatches mismatches;
  testing::for_stratified_floats(testing::full_tests() ? 20000 : 500, [&](float x) {
    if (std::isnan(x)) return;
    const auto expected = std::bit_cast<std::uint16_t>(static_cast<_Float16>(x));
    mismatches.check(expected, float_to_half(x), static_cast<double>(x));
  });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}
#endif

TEST(Half, TiesOverflowAndSubnormals) {
  EXPECT_EQ(float_to_half(65519.996f), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_half(-infinity()), kHalfNegativeInfinity);
  EXPECT_EQ(float_to_half(0x1p-25f), 0x0000) << "tie between 0 and the smallest subnormal";
  EXPECT_EQ(float_to_half(0x1.000002p-25f), 0x0001);
  EXPECT_EQ(float_to_half(0x1.FFEp-15f), 0x0400) << "tie between subnormal and normal";
  EXPECT_EQ(float_to_half(-0x1p-149f), 0x8000);
  EXPECT_EQ(float_to_bfloat16(kBfloat16Max), 0x7F7F);
  EXPECT_EQ(float_to_bfloat16(0x1.FEFFFEp127f), 0x7F7F);
  EXPECT_EQ(float_to_bfloat16(0x1.FFp127f), 0x7F80);
  EXPECT_EQ(float_to_bfloat16(0x1p-134f), 0x0000) << "tie between 0 and the smallest subnormal";
}

TEST(Half, NanStaysNanWhateverItsPayload) {
  for (const std::uint32_t bits : {0x7F80'0001u, 0x7F80'FFFFu, 0x7FFF'FFFFu, 0xFF80'0001u}) {
    EXPECT_TRUE(testing::is_half_nan(float_to_half(float_from_bits(bits)))) << bits;
    EXPECT_GT(float_to_bfloat16(float_from_bits(bits)) & 0x7FFFu, 0x7F80u) << bits;
  }
}

TEST(Half, SaturateKeepsNanAndSign) {
  EXPECT_EQ(saturate(1e30f, kHalfMax), kHalfMax);
  EXPECT_EQ(saturate(-infinity(), kHalfMax), -kHalfMax);
  EXPECT_EQ(saturate(-3.0f, kHalfMax), -3.0f);
  EXPECT_TRUE(std::signbit(saturate(-0.0f, kHalfMax)));
  EXPECT_TRUE(std::isnan(saturate(quiet_nan(), kHalfMax)));
}

}  // namespace
}  // namespace openvc::numerics
