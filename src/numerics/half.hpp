// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"

// Conversions between binary32 and the two 16-bit formats of the inputs, outputs and scores. They
// round in integer arithmetic, so no rounding mode or flush-to-zero flag of the host process can
// change a bit.
namespace openvc::numerics {

inline constexpr std::uint16_t kHalfNegativeInfinity = 0xFC00u;
inline constexpr float kHalfMax = 65504.0f;
inline constexpr float kBfloat16Max = 0x1.FEp127f;

OPENVC_HD constexpr float bfloat16_to_float(std::uint16_t bits) {
  return float_from_bits(static_cast<std::uint32_t>(bits) << 16);
}

/// Round to nearest even. Overflow gives infinity, NaN stays NaN (quiet).
OPENVC_HD constexpr std::uint16_t float_to_bfloat16(float x) {
  const std::uint32_t bits = float_bits(x);
  if ((bits & ~kFloatSignMask) > kFloatInfinityBits) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x0040u);
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

/// Exact. Written without branches, so that loops over it vectorise.
OPENVC_HD constexpr float half_to_float(std::uint16_t bits) {
  constexpr std::uint32_t kInfinity = 0x7C00u;
  constexpr std::uint32_t kMinNormal = 0x0400u;
  constexpr std::uint32_t kBiasDifference = (127u - 15u) << kFloatMantissaBits;
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFu;
  const std::uint32_t finite = (magnitude << 13) + kBiasDifference;
  const std::uint32_t normal = finite + (magnitude >= kInfinity ? kBiasDifference : 0u);
  // magnitude * 2^-24 is exact in binary32.
  const float subnormal = static_cast<float>(static_cast<std::int32_t>(magnitude)) * exp2_int(-24);
  const std::uint32_t is_normal = magnitude < kMinNormal ? 0u : ~0u;
  return float_from_bits(sign | (normal & is_normal) | (float_bits(subnormal) & ~is_normal));
}

/// Round to nearest even. Overflow gives infinity, NaN stays NaN (quiet).
OPENVC_HD constexpr std::uint16_t float_to_half(float x) {
  const std::uint32_t bits = float_bits(x);
  const auto sign = static_cast<std::uint16_t>((bits & kFloatSignMask) >> 16);
  const std::uint32_t magnitude = bits & ~kFloatSignMask;
  if (magnitude > kFloatInfinityBits) return static_cast<std::uint16_t>(sign | 0x7E00u);
  constexpr std::uint32_t kFirstOverflow = 0x477F'F000u;  // 65520, the tie above 65504
  if (magnitude >= kFirstOverflow) return static_cast<std::uint16_t>(sign | 0x7C00u);
  constexpr std::uint32_t kMinNormal = 0x3880'0000u;  // 2^-14
  if (magnitude < kMinNormal) {
    // Multiples of 2^-24: align the 24-bit significand to that grid.
    const int exponent = static_cast<int>(magnitude >> kFloatMantissaBits);
    if (exponent == 0) return sign;
    const std::uint32_t significand = (magnitude & 0x007F'FFFFu) | 0x0080'0000u;
    return static_cast<std::uint16_t>(sign | shift_right_nearest_even(significand, 126 - exponent));
  }
  const std::uint32_t rebased = magnitude - 0x3800'0000u;  // exponent bias 127 -> 15
  return static_cast<std::uint16_t>(sign | shift_right_nearest_even(rebased, 13));
}

/// x limited to the finite range of a format. NaN passes through.
OPENVC_HD constexpr float saturate(float x, float limit) {
  return x > limit ? limit : (x < -limit ? -limit : x);
}

}  // namespace openvc::numerics
