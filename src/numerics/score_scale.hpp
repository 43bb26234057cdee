// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"

// Power-of-two scales of Q and K.
//
// Scores are wanted in code units, 8 log2(e) softmax_scale q.k, the steps of an E4M3 code. The
// factor is folded into Q before it is quantised; a floating-point format loses nothing by a power
// of two, so one exponent per head and tensor suffices and no block scale is needed.
namespace openvc::numerics {

/// 8 log2(e): code units per nat.
inline constexpr float kCodeUnitsPerNat = 11.541560327111707f;

/// Scores are summed in binary16 (limit 65504). Cauchy-Schwarz bounds every partial sum by the
/// product of the row norms; 2^15.5 leaves room for E4M3 rounding of both factors ((1 + 2^-4)^2),
/// for the residual columns (1 + 2 2^-4) and for the rounding of the sum itself.
inline constexpr int kTwiceLog2ScoreLimit = 31;
static_assert(46341.0 * 1.0625 * 1.0625 * 1.125 * 1.01 < 65504.0, "2^15.5 with all growth");

/// Beyond 2^31 the smallest non-zero difference of two binary16 scores, 2^-24, is worth more than
/// 120 codes: the softmax is one-hot and a larger exponent changes nothing.
inline constexpr int kMaxScoreExponent = 31;

/// Exponents for which multipliers of Q and K stay normal binary32 numbers.
inline constexpr int kMinQueryExponent = -95;
inline constexpr int kMaxQueryExponent = 121;

/// Magnitudes whose squares sum safely in binary32; outside, norms are bounded through the maximum.
inline constexpr int kMinSafeExponent = -40;
inline constexpr int kMaxSafeExponent = 50;

/// Means are removed only below this magnitude, where sums and differences cannot overflow.
inline constexpr float kMaxCentredMagnitude = 0x1p100f;

/// Largest magnitude of a tensor's head and its largest row norm, from the statistics pass.
struct Extent {
  std::uint32_t magnitude_bits = 0;  // max over all elements of magnitude_bits(x)
  float row_sum_squares = 0.0f;      // max over rows, row_sum_squares()

  [[nodiscard]] OPENVC_HD constexpr bool finite() const {
    return magnitude_bits < kFloatInfinityBits;
  }
  [[nodiscard]] OPENVC_HD constexpr float magnitude() const {
    return float_from_bits(magnitude_bits);
  }
};

/// The smallest h of which the statistics guarantee norm^2 <= 2^h, for finite, non-zero extents.
OPENVC_HD constexpr int squared_norm_exponent(const Extent& extent) {
  const int exponent = floor_log2(extent.magnitude());
  if (exponent >= kMinSafeExponent && exponent <= kMaxSafeExponent) {
    return floor_log2(extent.row_sum_squares) + 1;
  }
  constexpr int kLog2HeadDim = 7;
  static_assert(1 << kLog2HeadDim == kHeadDim);
  return 2 * (exponent + 1) + kLog2HeadDim;
}

/// Multipliers are 2^-query_exponent (after the gain) and 2^-key_exponent; the accumulated score
/// counts 2^score_exponent code units, score_exponent = query_exponent + key_exponent >= 0.
struct ScoreScale {
  int query_exponent = 0;
  int key_exponent = 0;
  int score_exponent = 0;
};

/// Splits the range so that no accumulated score can overflow and both tensors sit at the same
/// distance from the limits of E4M3. Arguments: norm^2 <= 2^h of every row of gain * Q and of K.
OPENVC_HD constexpr ScoreScale score_scale(int query_h, int key_h) {
  const int excess = query_h + key_h - kTwiceLog2ScoreLimit;
  ScoreScale scale;
  scale.score_exponent = clamp_int((excess + 1) >> 1, 0, kMaxScoreExponent);
  // Equal scaled norms: query_exponent - key_exponent = (query_h - key_h) / 2.
  const int quarter = 2 * scale.score_exponent + query_h - key_h;  // 4 * query_exponent
  scale.query_exponent = clamp_int(quarter >> 2, kMinQueryExponent, kMaxQueryExponent);
  scale.key_exponent = scale.score_exponent - scale.query_exponent;
  return scale;
}

/// 8 log2(e) softmax_scale, the factor that turns q.k into code units.
OPENVC_HD constexpr float query_gain(float softmax_scale) {
  return kCodeUnitsPerNat * softmax_scale;
}

static_assert(score_scale(8, 8).score_exponent == 0);
static_assert(score_scale(16, 16).score_exponent == 1);
static_assert(score_scale(0, 20).query_exponent == -5 && score_scale(0, 20).key_exponent == 5);

}  // namespace openvc::numerics
