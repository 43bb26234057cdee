// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>

#include "numerics/bits.hpp"

// E4M3 (FN): 1 sign, 4 exponent (bias 7) and 3 mantissa bits, no infinity, NaN = 0x7F and 0xFF.
// Byte c = 8 E + M has the value 2^(E-7) (1 + M/8), or M 2^-9 where E = 0.
namespace openvc::numerics {

inline constexpr float kE4m3Max = 448.0f;
inline constexpr float kE4m3MinNormal = 0x1p-6f;
inline constexpr float kE4m3MinSubnormal = 0x1p-9f;
inline constexpr std::uint8_t kE4m3MaxCode = 0x7E;
inline constexpr std::uint8_t kE4m3Nan = 0x7F;
inline constexpr std::uint8_t kE4m3One = 0x38;
inline constexpr int kE4m3CodesPerOctave = 8;

/// Rounds to nearest even and saturates to +-448, infinities included. NaN gives 0x7F.
/// The twin of PTX cvt.rn.satfinite.e4m3x2.f32.
OPENVC_HD constexpr std::uint8_t e4m3_encode(float x) {
  const std::uint32_t bits = float_bits(x);
  const auto sign = static_cast<std::uint8_t>((bits & kFloatSignMask) >> 24);
  const std::uint32_t magnitude = bits & ~kFloatSignMask;
  if (magnitude > kFloatInfinityBits) return kE4m3Nan;
  constexpr std::uint32_t kMinNormalBits = 0x3C80'0000u;  // 2^-6
  constexpr int kDroppedBits = kFloatMantissaBits - 3;
  if (magnitude < kMinNormalBits) {
    // Multiples of 2^-9: align the 24-bit significand to that grid. Binary32 subnormals vanish.
    const int exponent = static_cast<int>(magnitude >> kFloatMantissaBits);
    if (exponent == 0) return sign;
    const std::uint32_t significand = (magnitude & 0x007F'FFFFu) | 0x0080'0000u;
    return static_cast<std::uint8_t>(sign | shift_right_nearest_even(significand, 141 - exponent));
  }
  constexpr std::uint32_t kRebase = (127u - 7u) << kFloatMantissaBits;
  const std::uint32_t code = shift_right_nearest_even(magnitude - kRebase, kDroppedBits);
  return static_cast<std::uint8_t>(sign | (code < kE4m3MaxCode ? code : kE4m3MaxCode));
}

/// Exact.
OPENVC_HD constexpr float e4m3_decode(std::uint8_t code) {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  const std::uint32_t magnitude = code & 0x7Fu;
  if (magnitude == kE4m3Nan) return float_from_bits(sign | kFloatQuietNanBits);
  const std::uint32_t exponent = magnitude >> 3;
  const std::uint32_t mantissa = magnitude & 7u;
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * kE4m3MinSubnormal;
    return float_from_bits(float_bits(value) | sign);
  }
  return float_from_bits(sign | ((exponent + 120u) << kFloatMantissaBits) | (mantissa << 20));
}

/// All 256 values, for table look-ups.
inline constexpr std::array<float, 256> kE4m3Values = [] {
  std::array<float, 256> values{};
  for (int code = 0; code < 256; ++code) {
    values[static_cast<std::size_t>(code)] = e4m3_decode(static_cast<std::uint8_t>(code));
  }
  return values;
}();

static_assert(e4m3_decode(kE4m3MaxCode) == kE4m3Max);
static_assert(e4m3_decode(kE4m3One) == 1.0f);
static_assert(
    [] {
      for (int code = 0; code < 256; ++code) {
        if ((code & 0x7F) == kE4m3Nan) continue;
        const auto byte = static_cast<std::uint8_t>(code);
        if (e4m3_encode(e4m3_decode(byte)) != byte) return false;
      }
      return true;
    }(),
    "every finite code must survive a round trip");

}  // namespace openvc::numerics
