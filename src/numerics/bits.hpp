// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Marks a function that has the same bits on the host and on a CUDA device. The only macro of this
// layer: nvcc needs the annotations, every other compiler must not see them.
#if defined(__CUDACC__)
#define OPENVC_HD __host__ __device__
#else
#define OPENVC_HD
#endif

namespace openvc::numerics {

// IEEE 754 binary32.
inline constexpr std::uint32_t kFloatSignMask = 0x8000'0000u;
inline constexpr std::uint32_t kFloatInfinityBits = 0x7F80'0000u;
inline constexpr std::uint32_t kFloatQuietNanBits = 0x7FC0'0000u;
inline constexpr int kFloatMantissaBits = 23;
inline constexpr int kFloatExponentBias = 127;
inline constexpr int kFloatMinNormalExponent = -126;
inline constexpr int kFloatMaxExponent = 127;

OPENVC_HD constexpr std::uint32_t float_bits(float x) {
  return __builtin_bit_cast(std::uint32_t, x);
}

OPENVC_HD constexpr float float_from_bits(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

OPENVC_HD constexpr float quiet_nan() { return float_from_bits(kFloatQuietNanBits); }

/// x, every NaN replaced by one: the bits of a NaN that arithmetic makes are the processor's own.
OPENVC_HD constexpr float with_canonical_nan(float x) { return x == x ? x : quiet_nan(); }

OPENVC_HD constexpr float infinity() { return float_from_bits(kFloatInfinityBits); }

/// |x| as an integer that orders like the magnitude: finite < infinity < NaN. A maximum over these
/// needs no special case for non-finite values, and no order of evaluation changes it.
OPENVC_HD constexpr std::uint32_t magnitude_bits(float x) {
  return float_bits(x) & ~kFloatSignMask;
}

OPENVC_HD constexpr bool is_finite(float x) { return magnitude_bits(x) < kFloatInfinityBits; }

OPENVC_HD constexpr float magnitude(float x) { return float_from_bits(magnitude_bits(x)); }

/// 2^exponent for exponents of normal numbers, -126 <= exponent <= 127.
OPENVC_HD constexpr float exp2_int(int exponent) {
  return float_from_bits(static_cast<std::uint32_t>(exponent + kFloatExponentBias)
                         << kFloatMantissaBits);
}

/// floor(log2(x)) of a positive, finite x; subnormals count as the smallest normal exponent.
OPENVC_HD constexpr int floor_log2(float x) {
  const int biased = static_cast<int>(magnitude_bits(x) >> kFloatMantissaBits);
  return (biased == 0 ? 1 : biased) - kFloatExponentBias;
}

/// ceil(log2(x)) of a positive, finite x; subnormals count as the smallest normal exponent.
OPENVC_HD constexpr int ceil_log2(float x) {
  const std::uint32_t magnitude = magnitude_bits(x);
  const bool subnormal = magnitude >> kFloatMantissaBits == 0;
  const bool power_of_two = (magnitude & ((1u << kFloatMantissaBits) - 1u)) == 0;
  return floor_log2(x) + (subnormal || power_of_two ? 0 : 1);
}

OPENVC_HD constexpr int clamp_int(int x, int low, int high) {
  return x < low ? low : (x > high ? high : x);
}

/// ceil(a / b) for a >= 0, b > 0.
OPENVC_HD constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

OPENVC_HD constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) {
  return ceil_div(a, multiple) * multiple;
}

/// Shifts right and rounds to nearest, ties to even, for x <= 2^31: a shift beyond 31 gives 0.
OPENVC_HD constexpr std::uint32_t shift_right_nearest_even(std::uint32_t x, int shift) {
  if (shift <= 0) return x;
  if (shift > 31) return 0;
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t rest = x & ((half << 1) - 1u);
  const std::uint32_t quotient = x >> shift;
  const bool up = rest > half || (rest == half && (quotient & 1u) != 0);
  return quotient + (up ? 1u : 0u);
}

}  // namespace openvc::numerics
