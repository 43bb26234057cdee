// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"

// ExpCast: the byte of a softmax probability written straight from its score.
//
// An E4M3 code is nearly an affine function of the logarithm of its value, eight codes an octave. A
// score in code units (1/8 octave) therefore becomes a probability by one addition and a rounding:
// code = clamp(round(score + offset), 0, 126). See docs/numerics.md section 3.
namespace openvc::numerics {

/// Code of the largest probability of a row: 256.0. The codes up to 126 stay as headroom.
inline constexpr int kPeakCode = 120;

/// Code of the value 1.0; 2^((code - kUnitCode) / 8) is the value that a code stands for.
inline constexpr int kUnitCode = 56;

/// Natural logarithm of the mean of decoded(code) / 2^((x - kUnitCode) / 8) for x uniform over an
/// octave: rounding in the code domain overestimates on average (a chord lies above 2^x).
inline constexpr float kLogMeanRatio = 0.0395707f;

/// A normal binary16 number counts code units in steps of 2^-24, so that the bits of its subnormals
/// are integers: relu(S 2^-24 + offset 2^-24) leaves the code in the low byte.
inline constexpr int kHalfGridExponent = -24;

/// Offset of a row: the largest multiple of 2^-24 representable in binary16 that keeps the row
/// maximum at or below the peak code, returned in code units. It is an integer. Up to 2047 this is
/// floor(120 - row_max); beyond, binary16 is coarser and the peak may land up to 32 codes lower.
/// Scores of one row keep their differences, which is all that the normalisation sees.
OPENVC_HD constexpr float row_offset(float row_max) {
  constexpr float kExactIntegers = 2048.0f;
  const float target = static_cast<float>(kPeakCode) - row_max;
  const float size = magnitude(target);
  int exponent = 0;
  if (size >= kExactIntegers) exponent = floor_log2(size) - 10;
  const float step = exp2_int(exponent);
  const float quotient = target / step;  // exact: step is a power of two
  const auto truncated = static_cast<std::int32_t>(quotient);
  const auto whole = static_cast<float>(truncated);
  return (whole > quotient ? whole - 1.0f : whole) * step;
}

/// round_half_even(x) for |x| < 2^22, as an integer.
OPENVC_HD constexpr std::int32_t round_half_even(float x) {
  const auto truncated = static_cast<std::int32_t>(x);
  const float rest = x - static_cast<float>(truncated);
  const float size = rest < 0.0f ? -rest : rest;
  const std::int32_t away = rest < 0.0f ? -1 : 1;
  if (size > 0.5f || (size == 0.5f && (truncated & 1) != 0)) return truncated + away;
  return truncated;
}

/// The unclamped code of a score, limited to what can still matter. NaN gives kE4m3Nan.
///
/// `score` holds a binary16 value. The binary32 sum is exact wherever the code is not clamped: near
/// a tie |score| >= 1/4, so score and integer offset share fewer than 24 bits.
OPENVC_HD constexpr std::int32_t unclamped_code(float score, float offset) {
  constexpr float kLowest = -1024.0f;
  const float x = score + offset;
  if (magnitude_bits(x) > kFloatInfinityBits) return kE4m3Nan;
  return round_half_even(x < kLowest ? kLowest : x);
}

/// ExpCast without tail correction.
OPENVC_HD constexpr std::uint8_t exp_cast(float score, float offset) {
  return static_cast<std::uint8_t>(clamp_int(unclamped_code(score, offset), 0, kE4m3Nan));
}

/// Codes 1..7 are E4M3 subnormals, which are linear in the code; the affine map underestimates
/// there. The line x/4 + 4 follows them down to x = -16, two octaves below the flush of the plain
/// map. `code` is the rounded, unclamped code: the GPU recipe rounds twice, and so does this.
OPENVC_HD constexpr std::int32_t correct_tail(std::int32_t code) {
  constexpr std::int32_t kSlopeShift = 2;
  constexpr std::int32_t kIntercept = 4;
  // Floor division and remainder of a possibly negative code.
  const std::int32_t quotient = code >> kSlopeShift;
  const std::int32_t rest = code - quotient * (1 << kSlopeShift);
  const bool up = rest > 2 || (rest == 2 && ((quotient + kIntercept) & 1) != 0);
  const std::int32_t line = quotient + kIntercept + (up ? 1 : 0);
  return line > code ? line : code;
}

/// ExpCast with tail correction.
OPENVC_HD constexpr std::uint8_t exp_cast_tail(float score, float offset) {
  return static_cast<std::uint8_t>(
      clamp_int(correct_tail(unclamped_code(score, offset)), 0, kE4m3Nan));
}

/// 2^(code_units / 8), the factor between two row offsets; `code_units` <= 0. Within 2 ulp of the
/// exact value; the only transcendental of the main loop, once per row and change of the maximum.
OPENVC_HD constexpr float exp2_code_units(float code_units) {
  constexpr float kUnderflow = -8.0f * 149.0f;
  if (!(code_units > kUnderflow)) return code_units == code_units ? 0.0f : code_units;
  const float octaves = code_units / static_cast<float>(kE4m3CodesPerOctave);
  auto whole = static_cast<std::int32_t>(octaves);
  if (static_cast<float>(whole) > octaves) --whole;
  const float x = (octaves - static_cast<float>(whole)) * 0.693147180559945f;  // [0, ln 2)
  // Taylor series of exp; the last term is below 2^-27 on this interval.
  float term = 1.0f;
  float sum = 1.0f;
  for (int n = 1; n <= 10; ++n) {
    term = term * x / static_cast<float>(n);
    sum += term;
  }
  if (whole >= kFloatMinNormalExponent) return sum * exp2_int(whole);
  return sum * exp2_int(whole + 64) * exp2_int(-64);
}

static_assert(row_offset(0.0f) == 120.0f && row_offset(0.25f) == 119.0f);
static_assert(row_offset(-3.5f) == 123.0f && row_offset(-30000.0f) == 30112.0f);
static_assert(row_offset(60000.0f) == -59904.0f);
static_assert(exp_cast(0.0f, row_offset(0.0f)) == kPeakCode);
static_assert(exp_cast(60000.0f, row_offset(60000.0f)) == 96);
static_assert(correct_tail(8) == 8 && correct_tail(7) == 7 && correct_tail(-16) == 0);
static_assert(correct_tail(4) == 5 && correct_tail(0) == 4 && correct_tail(-20) < 0);

}  // namespace openvc::numerics
