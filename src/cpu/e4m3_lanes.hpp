// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/e4m3.hpp"

// The E4M3 codec without branches: both cases are computed and one is selected, which lets the
// compiler vectorise loops over channels. Equal to numerics::e4m3_encode and e4m3_decode for every
// argument (tests/unit/cpu/e4m3_lanes_test.cpp), given the default rounding mode.
namespace openvc::cpu {

inline constexpr std::uint32_t kE4m3MinNormalBits = numerics::float_bits(numerics::kE4m3MinNormal);
inline constexpr int kE4m3DroppedBits = numerics::kFloatMantissaBits - 3;
/// Exponent bias of binary32 minus that of E4M3, in place.
inline constexpr std::uint32_t kE4m3Rebase = (127u - 7u) << numerics::kFloatMantissaBits;

inline std::uint32_t encode_e4m3_lane(float x) {
  const std::uint32_t bits = numerics::float_bits(x);
  const std::uint32_t magnitude = bits & ~numerics::kFloatSignMask;
  const std::uint32_t sign = (bits & numerics::kFloatSignMask) >> 24;

  // Normal codes: round the mantissa to nearest even; the carry runs into the exponent.
  constexpr std::uint32_t kHalfMinusOne = (1u << (kE4m3DroppedBits - 1)) - 1u;
  const std::uint32_t odd = (magnitude >> kE4m3DroppedBits) & 1u;
  const std::uint32_t rounded = (magnitude - kE4m3Rebase + kHalfMinusOne + odd) >> kE4m3DroppedBits;
  const std::uint32_t normal =
      rounded < numerics::kE4m3MaxCode ? rounded : std::uint32_t{numerics::kE4m3MaxCode};

  // Subnormal codes: at 2^14 the last mantissa bit of binary32 is worth 2^-9, a code's step.
  constexpr float kAligner = 0x1p14f;
  const std::uint32_t subnormal =
      numerics::float_bits(numerics::float_from_bits(magnitude) + kAligner) & 0xFFu;

  const std::uint32_t finite = sign | (magnitude < kE4m3MinNormalBits ? subnormal : normal);
  return magnitude > numerics::kFloatInfinityBits ? std::uint32_t{numerics::kE4m3Nan} : finite;
}

inline float decode_e4m3_lane(std::uint32_t code) {
  const std::uint32_t sign = (code & 0x80u) << 24;
  const std::uint32_t magnitude = code & 0x7Fu;
  const std::uint32_t normal = (magnitude << kE4m3DroppedBits) + kE4m3Rebase;
  const std::uint32_t subnormal = numerics::float_bits(
      static_cast<float>(static_cast<std::int32_t>(magnitude)) * numerics::kE4m3MinSubnormal);
  const std::uint32_t finite = magnitude < numerics::kE4m3CodesPerOctave ? subnormal : normal;
  return numerics::float_from_bits(
      sign | (magnitude == numerics::kE4m3Nan ? numerics::kFloatQuietNanBits : finite));
}

}  // namespace openvc::cpu
