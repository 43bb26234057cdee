// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"

// ExpCast: the byte of a softmax probability written straight from its score.
//
// An E4M3 code is nearly an affine function of the logarithm of its value, eight codes an octave. A
// score in code units (1/8 octave) therefore becomes a probability by one addition and a rounding:
// code = max(round(score + offset), 0). See docs/numerics.md section 3.
namespace openvc::numerics {

/// Code of the largest probability of a row: the largest finite code, 448.0. The row maximum is
/// exact, so no headroom is needed, and six codes more at the top are six codes less of tail lost.
inline constexpr int kPeakCode = kContract.peak_code;
static_assert(kPeakCode <= kE4m3MaxCode);

/// Byte of a NaN score, and of a score so far above its row's maximum that no code is left: both
/// are faults that must stay visible. It is the low byte of the canonical binary16 NaN, 0x7FFF,
/// which the tensor-core recipe leaves; shifted left by 7 it is a NaN again.
inline constexpr std::uint8_t kNanProbability = 0xFF;

/// Code of the value 1.0; 2^((code - kUnitCode) / 8) is the value that a code stands for.
inline constexpr int kUnitCode = kE4m3One;

/// Natural logarithm of the mean of decoded(code) / 2^((x - kUnitCode) / 8) for x uniform over an
/// octave: rounding in the code domain overestimates on average (a chord lies above 2^x).
inline constexpr float kLogMeanRatio = kContract.log_mean_ratio;

/// ceil(x) for |x| < 2^31.
OPENVC_HD constexpr float ceil_to_integer(float x) {
  const auto truncated = static_cast<float>(static_cast<std::int32_t>(x));
  return truncated < x ? truncated + 1.0f : truncated;
}

/// A normal binary16 number counts code units in steps of 2^-24, so that the bits of its subnormals
/// are integers: relu(S 2^-24 + offset 2^-24) leaves the code in the low byte.
inline constexpr int kHalfGridExponent = -24;

/// Offset of a row: the largest multiple of 2^-24 representable in binary16 that keeps the row
/// maximum at or below the peak code, returned in code units. It is an integer. Up to 2048 this is
/// floor(kPeakCode - row_max); beyond, binary16 is coarser and the peak may land up to 32 codes
/// lower. Scores of one row keep their differences, which is all that the normalisation sees.
///
/// `row_max` is a binary16 value, an integer beyond 1024, which keeps every step exact. A maximum
/// that is not finite gives an offset that is not, so that the row's codes are NaN or 0.
OPENVC_HD constexpr float row_offset(float row_max) {
  if (!is_finite(row_max)) return -row_max;
  constexpr float kExactIntegers = 2048.0f;
  // Rounding the maximum up rather than the difference down: the difference may not be exact.
  const float target = static_cast<float>(kPeakCode) - ceil_to_integer(row_max);
  const float size = magnitude(target);
  if (size < kExactIntegers) return target;
  const int exponent = floor_log2(size) - 10;
  return -ceil_to_integer(-target * exp2_int(-exponent)) * exp2_int(exponent);
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

/// Codes at which unclamped_code() stops counting. Nothing beyond can matter.
inline constexpr std::int32_t kUnclampedCodeLimit = 1024;

/// The unclamped code of a score; NaN counts as the upper limit.
///
/// `score` holds a binary16 value. The binary32 sum is exact wherever the code is not clamped: near
/// a tie |score| >= 1/4, so score and integer offset share fewer than 24 bits.
OPENVC_HD constexpr std::int32_t unclamped_code(float score, float offset) {
  constexpr auto kLimit = static_cast<float>(kUnclampedCodeLimit);
  const float x = score + offset;
  if (!(x < kLimit)) return kUnclampedCodeLimit;
  return round_half_even(x > -kLimit ? x : -kLimit);
}

/// Byte of an unclamped code.
OPENVC_HD constexpr std::uint8_t clamp_code(std::int32_t code) {
  if (code > kE4m3MaxCode) return kNanProbability;
  return static_cast<std::uint8_t>(code < 0 ? 0 : code);
}

/// ExpCast without tail correction.
OPENVC_HD constexpr std::uint8_t exp_cast(float score, float offset) {
  return clamp_code(unclamped_code(score, offset));
}

/// Codes 1..7 are E4M3 subnormals, which are linear in the code; the affine map underestimates
/// there. The line x/4 + 4 follows them; probabilities vanish below code -13 instead of 1, almost
/// two octaves later. `code` is the rounded, unclamped code: the GPU recipe rounds twice, and so
/// does this.
OPENVC_HD constexpr std::int32_t correct_tail(std::int32_t code) {
  constexpr std::int32_t kSlopeShift = kContract.tail_slope_shift;
  constexpr std::int32_t kIntercept = kContract.tail_intercept;
  // Floor division and remainder of a possibly negative code.
  const std::int32_t quotient = code >> kSlopeShift;
  const std::int32_t rest = code - quotient * (1 << kSlopeShift);
  const bool up = rest > 2 || (rest == 2 && ((quotient + kIntercept) & 1) != 0);
  const std::int32_t line = quotient + kIntercept + (up ? 1 : 0);
  return line > code ? line : code;
}

/// ExpCast with tail correction.
OPENVC_HD constexpr std::uint8_t exp_cast_tail(float score, float offset) {
  return clamp_code(correct_tail(unclamped_code(score, offset)));
}

/// 2^(code_units / 8), the factor between two row offsets; `code_units` <= 0. Within 1 ulp of the
/// exact value, and exact where that is a normal power of two. The only transcendental of the main
/// loop, once per row and change of the maximum.
OPENVC_HD constexpr float exp2_code_units(float code_units) {
  constexpr float kUnderflow = -8.0f * 149.0f;
  if (!(code_units > kUnderflow)) return code_units == code_units ? 0.0f : code_units;
  const float octaves = code_units / static_cast<float>(kE4m3CodesPerOctave);
  const std::int32_t whole = round_half_even(octaves);
  const float x = octaves - static_cast<float>(whole);  // exact, |x| <= 1/2
  // Taylor series of 2^x, (x ln 2)^n / n!; the first term left out is below 2^-27.
  constexpr double kLn2 = 0.693147180559945309;
  constexpr double kLn2Squared = kLn2 * kLn2;
  float power = static_cast<float>(kLn2Squared * kLn2Squared * kLn2Squared * kLn2 / 5040.0);
  power =
      __builtin_fmaf(power, x, static_cast<float>(kLn2Squared * kLn2Squared * kLn2Squared / 720.0));
  power = __builtin_fmaf(power, x, static_cast<float>(kLn2Squared * kLn2Squared * kLn2 / 120.0));
  power = __builtin_fmaf(power, x, static_cast<float>(kLn2Squared * kLn2Squared / 24.0));
  power = __builtin_fmaf(power, x, static_cast<float>(kLn2Squared * kLn2 / 6.0));
  power = __builtin_fmaf(power, x, static_cast<float>(kLn2Squared / 2.0));
  power = __builtin_fmaf(power, x, static_cast<float>(kLn2));
  power = __builtin_fmaf(power, x, 1.0f);
  if (whole >= kFloatMinNormalExponent) return power * exp2_int(whole);
  // Subnormal results: the second product is the only one that rounds.
  constexpr int kHalfWay = 64;
  return power * exp2_int(whole + kHalfWay) * exp2_int(-kHalfWay);
}

static_assert(row_offset(0.0f) == kPeakCode && row_offset(0.25f) == kPeakCode - 1);
static_assert(row_offset(-3.5f) == kPeakCode + 3 && row_offset(0x1p-24f) == kPeakCode - 1);
static_assert(row_offset(-30000.0f) == 30112.0f && row_offset(60000.0f) == -59904.0f);
static_assert(exp_cast(0.0f, row_offset(0.0f)) == kPeakCode);
static_assert(exp_cast(60000.0f, row_offset(60000.0f)) == 96);
static_assert(correct_tail(8) == 8 && correct_tail(7) == 7 && correct_tail(-16) == 0);
static_assert(correct_tail(4) == 5 && correct_tail(0) == 4 && correct_tail(-20) < 0);

}  // namespace openvc::numerics
