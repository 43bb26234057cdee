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
// code = max(round(score + offset), 0). The offset is that of the key block, so that its largest
// score gets the peak code (online_softmax.hpp). See docs/numerics.md section 3.
namespace openvc::numerics {

/// Code of the largest probability of a key block: the largest finite code, 448.0. The maximum of
/// the block is known exactly, so no headroom is needed.
inline constexpr int kPeakCode = kContract.peak_code;
static_assert(kPeakCode <= kE4m3MaxCode);

/// Byte of a NaN score, and of a score so far above its block's maximum that no code is left: both
/// are faults that must stay visible. It is the low byte of the canonical binary16 NaN, 0x7FFF,
/// which the tensor-core recipe leaves; shifted left by 7 it is a NaN again.
inline constexpr std::uint8_t kNanProbability = 0xFF;

/// Code of the value 1.0; 2^((code - kUnitCode) / 8) is the value that a code stands for.
inline constexpr int kUnitCode = kE4m3One;

/// A normal binary16 number counts code units in steps of 2^-24, so that the bits of its subnormals
/// are integers: relu(S 2^-24 + offset 2^-24) leaves the code in the low byte.
inline constexpr int kHalfGridExponent = -24;

/// Offset of a key block whose largest score is `top`: kPeakCode - top rounded half to even to
/// binary16 in steps of 2^-24, in code units. Up to kExactOffsets it is an integer that leaves the
/// largest score at the peak code: top + offset lies within 1/2 of it, and of two neighbours at a
/// distance of 1/2 the peak code is the even one. Larger tops are subtracted from the scores before
/// (HeadRule::wide()).
///
/// `top` is a binary16 value, so the sum is exact. A top that is not finite gives an offset that is
/// not, so that the block's codes are NaN or 0.
OPENVC_HD constexpr float block_offset(float top) {
  if (!is_finite(top)) return -top;
  return half_to_float(
             float_to_half((static_cast<float>(kPeakCode) - top) * exp2_int(kHalfGridExponent))) *
         exp2_int(-kHalfGridExponent);
}

/// Magnitude up to which binary16 in steps of 2^-24 holds every integer.
inline constexpr int kExactOffsets = 2048;

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

/// ExpCast.
OPENVC_HD constexpr std::uint8_t exp_cast(float score, float offset) {
  return clamp_code(unclamped_code(score, offset));
}

/// Taylor series of 2^x for |x| <= 1/2, highest power first: (ln 2)^n / n!. The first term left out
/// is below 2^-27.
struct Exp2Series {
  static constexpr int kTerms = 8;
  float coefficients[kTerms] = {};

  constexpr Exp2Series() {
    constexpr double kLn2 = 0.693147180559945309;
    double term = 1.0;
    for (int n = 0; n < kTerms; ++n) {
      coefficients[kTerms - 1 - n] = static_cast<float>(term);
      term *= kLn2 / (n + 1);
    }
  }
};

/// 2^(code_units / 8), for results below 2^127: the weight of a key block. Within 1 ulp of the
/// exact value, and exact where that is a normal power of two. The only transcendental of the main
/// loop, once per row and key block.
OPENVC_HD constexpr float exp2_code_units(float code_units) {
  constexpr float kUnderflow = -8.0f * 149.0f;
  if (!(code_units > kUnderflow)) return code_units == code_units ? 0.0f : code_units;
  const float octaves = code_units / static_cast<float>(kE4m3CodesPerOctave);
  const std::int32_t whole = round_half_even(octaves);
  const float x = octaves - static_cast<float>(whole);  // exact, |x| <= 1/2
  constexpr Exp2Series kSeries;
  float power = kSeries.coefficients[0];
  for (int i = 1; i < Exp2Series::kTerms; ++i) {
    power = __builtin_fmaf(power, x, kSeries.coefficients[i]);
  }
  if (whole >= kFloatMinNormalExponent) return power * exp2_int(whole);
  // Subnormal results: the second product is the only one that rounds.
  constexpr int kHalfWay = 64;
  return power * exp2_int(whole + kHalfWay) * exp2_int(-kHalfWay);
}

static_assert(block_offset(0.0f) == kPeakCode && block_offset(0.25f) == kPeakCode);
static_assert(block_offset(0.5f) == kPeakCode && block_offset(1.5f) == kPeakCode - 2, "half even");
static_assert(block_offset(-3.75f) == kPeakCode + 4 && block_offset(0x1p-24f) == kPeakCode);
static_assert(exp_cast(0.5f, block_offset(0.5f)) == kPeakCode);
static_assert(exp_cast(1.5f, block_offset(1.5f)) == kPeakCode);
static_assert(exp_cast(-300.5f, block_offset(-300.5f)) == kPeakCode);

}  // namespace openvc::numerics
