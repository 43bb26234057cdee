// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/bits.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "unit/numerics/sweep.hpp"

namespace openvc::numerics {
namespace {

TEST(Bits, PowersOfTwoAreExactOverTheWholeRange) {
  for (int e = kFloatMinNormalExponent; e <= kFloatMaxExponent; ++e) {
    EXPECT_EQ(exp2_int(e), std::ldexp(1.0f, e)) << e;
  }
}

TEST(Bits, LogarithmsRoundTowardsTheirSide) {
  for (int e = kFloatMinNormalExponent; e <= kFloatMaxExponent; ++e) {
    const float power = exp2_int(e);
    EXPECT_EQ(floor_log2(power), e);
    EXPECT_EQ(ceil_log2(power), e);
    EXPECT_EQ(floor_log2(std::nextafter(power, infinity())), e);
    EXPECT_EQ(ceil_log2(std::nextafter(power, infinity())), e + 1);
  }
  for (const float subnormal : {0x1p-149f, 0x1p-130f, 0x1.FFFFFCp-127f}) {
    EXPECT_EQ(floor_log2(subnormal), kFloatMinNormalExponent);
    EXPECT_EQ(ceil_log2(subnormal), kFloatMinNormalExponent);
  }
}

TEST(Bits, MagnitudeBitsOrderLikeMagnitudes) {
  const float ascending[] = {0.0f,       0x1p-149f,  1.0f, -2.0f, -0x1.FFFFFEp127f,
                             infinity(), quiet_nan()};
  for (std::size_t i = 1; i < std::size(ascending); ++i) {
    EXPECT_LT(magnitude_bits(ascending[i - 1]), magnitude_bits(ascending[i])) << i;
  }
  EXPECT_EQ(magnitude_bits(-0.0f), 0u);
  EXPECT_TRUE(is_finite(-0x1.FFFFFEp127f));
  EXPECT_FALSE(is_finite(-infinity()));
  EXPECT_FALSE(is_finite(quiet_nan()));
  EXPECT_EQ(float_bits(magnitude(-3.0f)), float_bits(3.0f));
}

TEST(Bits, ShiftRoundsToNearestEven) {
  testing::Random random(1);
  for (int shift = 0; shift <= 40; ++shift) {
    for (int i = 0; i < 2000; ++i) {
      // Few significant bits, so that ties are frequent; the largest value allowed, too.
      auto x = static_cast<std::uint32_t>(random.bits() >> 33);
      if (i % 2 == 0) x &= ~0u << random.below(32);
      if (i == 0) x = 1u << 31;
      const double exact = std::ldexp(static_cast<double>(x), -shift);
      EXPECT_EQ(static_cast<double>(shift_right_nearest_even(x, shift)), std::nearbyint(exact))
          << x << " >> " << shift;
    }
  }
}

TEST(Bits, CeilDivAndRoundUpBeyond32Bits) {
  EXPECT_EQ(ceil_div(0, 128), 0);
  EXPECT_EQ(ceil_div(1, 128), 1);
  EXPECT_EQ(ceil_div(128, 128), 1);
  EXPECT_EQ(ceil_div(129, 128), 2);
  constexpr std::int64_t kLarge = (std::int64_t{1} << 40) + 1;
  EXPECT_EQ(ceil_div(kLarge, 128), (std::int64_t{1} << 33) + 1);
  EXPECT_EQ(round_up(kLarge, 128), (std::int64_t{1} << 40) + 128);
}

}  // namespace
}  // namespace openvc::numerics
