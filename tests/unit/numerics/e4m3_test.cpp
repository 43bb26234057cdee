// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/e4m3.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "unit/numerics/cuda_fp8_oracle.hpp"
#include "unit/numerics/oracles.hpp"
#include "unit/numerics/sweep.hpp"

namespace openvc::numerics {
namespace {

/// Value of a code from the definition of the format alone.
double defined_value(int code) {
  const int exponent = (code >> 3) & 0xF;
  const int mantissa = code & 7;
  const double size = exponent == 0 ? mantissa * std::pow(2.0, -9)
                                    : std::pow(2.0, exponent - 7) * (1.0 + mantissa / 8.0);
  return (code & 0x80) != 0 ? -size : size;
}

/// Code of a float by value: round, saturate, look up.
int expected_code(float x) {
  if (std::isnan(x)) return kE4m3Nan;
  const double rounded = testing::round_to_format(static_cast<double>(x), testing::kE4m3);
  const double size = std::min(std::fabs(rounded), 448.0);
  int low = 0;
  int high = kE4m3MaxCode;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (defined_value(middle) < size) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  EXPECT_EQ(defined_value(low), size);
  return std::signbit(x) ? low | 0x80 : low;
}

TEST(E4m3, DecodesByDefinition) {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_decode(static_cast<std::uint8_t>(code));
    EXPECT_EQ(float_bits(value), float_bits(kE4m3Values[static_cast<std::size_t>(code)])) << code;
    if ((code & 0x7F) == kE4m3Nan) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    EXPECT_EQ(static_cast<double>(value), defined_value(code)) << code;
    EXPECT_EQ(std::signbit(value), (code & 0x80) != 0) << code;
  }
}

TEST(E4m3, ShiftedCodeIsTheValueInBinary16) {
  // What the kernels rely on when they decode two bytes with one shift.
  for (int code = 0; code <= kE4m3MaxCode; ++code) {
    const float value = half_to_float(static_cast<std::uint16_t>(code << 7));
    EXPECT_EQ(value, e4m3_decode(static_cast<std::uint8_t>(code)) * 0x1p-8f) << code;
  }
}

TEST(E4m3, EncodesStratifiedFloatsByValue) {
  testing::Mismatches mismatches;
  testing::for_stratified_floats(testing::full_tests() ? 4000 : 100, [&](float x) {
    mismatches.check(expected_code(x), e4m3_encode(x), static_cast<double>(x));
  });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

TEST(E4m3, EncodesLikeCudaFp8) {
  if (!testing::kHaveCudaFp8) GTEST_SKIP() << "cuda_fp8.h was not found when this was built";
  testing::Mismatches mismatches;
  testing::for_stratified_floats(testing::full_tests() ? 40000 : 2000, [&](float x) {
    mismatches.check(testing::cuda_fp8_encode(x), e4m3_encode(x), static_cast<double>(x));
  });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7F) == kE4m3Nan) continue;
    const auto byte = static_cast<std::uint8_t>(code);
    EXPECT_EQ(testing::cuda_fp8_decode(byte), e4m3_decode(byte)) << code;
  }
}

TEST(E4m3, SaturatesAndKeepsNan) {
  EXPECT_EQ(e4m3_encode(464.0f), kE4m3MaxCode);
  EXPECT_EQ(e4m3_encode(1e30f), kE4m3MaxCode);
  EXPECT_EQ(e4m3_encode(infinity()), kE4m3MaxCode);
  EXPECT_EQ(e4m3_encode(-infinity()), kE4m3MaxCode | 0x80);
  for (const std::uint32_t bits : {0x7F80'0001u, 0x7FC0'0000u, 0xFF80'0001u, 0xFFFF'FFFFu}) {
    EXPECT_EQ(e4m3_encode(float_from_bits(bits)), kE4m3Nan) << bits;
  }
  EXPECT_EQ(e4m3_encode(-0.0f), 0x80);
  EXPECT_EQ(e4m3_encode(-0x1p-149f), 0x80);
  EXPECT_EQ(e4m3_encode(0x1p-10f), 0x00) << "tie between 0 and the smallest subnormal";
  EXPECT_EQ(e4m3_encode(0x1.8p-9f), 0x02) << "tie between two subnormals";
  EXPECT_EQ(e4m3_encode(0x1.Fp-7f), 0x08) << "tie between subnormal and normal";
}

}  // namespace
}  // namespace openvc::numerics
