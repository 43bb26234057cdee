// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "numerics/statistics.hpp"

// Power-of-two scales of Q and K.
//
// Scores are wanted in code units, 8 log2(e) softmax_scale q.k, the steps of an E4M3 code. The
// factor is folded into Q before it is quantised; a floating-point format loses nothing by a power
// of two, so one exponent per head and tensor suffices and no block scale is needed.
namespace openvc::numerics {

/// 8 log2(e): code units per nat.
inline constexpr double kExactCodeUnitsPerNat = 11.541560327111707;
inline constexpr float kCodeUnitsPerNat = static_cast<float>(kExactCodeUnitsPerNat);

/// ln(2) / 8: nats per code unit.
inline constexpr float kNatsPerCodeUnit = 0.0866433975699932f;

/// Scores are summed in binary16 (limit 65504). Cauchy-Schwarz bounds every partial sum by the
/// product of the row norms; 2^15.5 leaves room for E4M3 rounding of both factors ((1 + 2^-4)^2),
/// for the residual columns (1 + 2 2^-4) and for the rounding of the sum itself.
inline constexpr int kTwiceLog2ScoreLimit = kContract.twice_log2_score_limit;
static_assert(46341.0 * 1.0625 * 1.0625 * 1.125 * 1.01 < 65504.0, "2^15.5 with all growth");

/// Beyond 2^31 the smallest non-zero difference of two scores is worth more than 126 codes: the
/// softmax is one-hot and a larger exponent changes nothing. (A score is a sum of products of two
/// E4M3 numbers, multiples of 2^-18, so differences are too.)
inline constexpr int kMaxScoreExponent = kContract.max_score_exponent;

/// Exponents that a multiplier may have: with a mantissa in [1, 4) it stays a normal number.
inline constexpr int kMinMultiplierExponent = kFloatMinNormalExponent;
inline constexpr int kMaxMultiplierExponent = kFloatMaxExponent - 1;

/// Magnitudes whose squares sum safely in binary32; outside, norms are bounded through the maximum.
inline constexpr int kMinSafeExponent = kContract.min_safe_exponent;
inline constexpr int kMaxSafeExponent = kContract.max_safe_exponent;

/// Means are removed only below this magnitude, where sums and differences cannot overflow.
inline constexpr float kMaxCentredMagnitude = kContract.max_centred_magnitude;

/// Whether sums of squares of such magnitudes neither overflow nor lose their value to subnormals.
OPENVC_HD constexpr bool has_safe_squares(const Extent& extent) {
  const int exponent = floor_log2(extent.magnitude());
  return exponent >= kMinSafeExponent && exponent <= kMaxSafeExponent;
}

/// An h of which the statistics guarantee norm^2 <= 2^h, for finite, non-zero extents. It is at
/// most one more than necessary where the squares are safe, at most nine (one channel alone)
/// elsewhere.
template <int kDim = kHeadDim>
OPENVC_HD constexpr int squared_norm_exponent(const Extent& extent) {
  if (has_safe_squares(extent)) return floor_log2(extent.row_sum_squares) + 1;
  constexpr int kLog2Dim = ceil_log2(static_cast<float>(kDim));
  return 2 * (floor_log2(extent.magnitude()) + 1) + kLog2Dim;
}

/// Largest excess_exponent: two factors of the largest power of two, and a byte of the prepared
/// head. From 2^124 on every score but zero leaves binary32 anyway.
inline constexpr int kMaxExcessExponent = 2 * kFloatMaxExponent;
static_assert(kMaxExcessExponent < 256);

/// Multipliers are 2^-query_exponent (after the gain) and 2^-key_exponent. The accumulated score
/// counts 2^(query_exponent + key_exponent) code units. The softmax takes it for
/// 2^score_exponent, which kMaxScoreExponent caps; the log-sum-exp adds the rest.
struct ScoreScale {
  int query_exponent = 0;
  int key_exponent = 0;
  int score_exponent = 0;
  int excess_exponent = 0;  // what the cap took
};

/// Splits the range so that no accumulated score can overflow and both tensors sit at the same
/// distance from the limits of E4M3. `query_h`, `key_h`: norm^2 <= 2^h of every row of gain * Q and
/// of K. `gain_exponent`: of the gain, which Q's multiplier contains.
OPENVC_HD constexpr ScoreScale score_scale(int query_h, int key_h, int gain_exponent = 0) {
  const int excess = query_h + key_h - kTwiceLog2ScoreLimit;
  const int total = excess > 0 ? (excess + 1) >> 1 : 0;
  ScoreScale scale;
  scale.score_exponent = total < kMaxScoreExponent ? total : kMaxScoreExponent;
  // Equal scaled norms: query_exponent - key_exponent = (query_h - key_h) / 2.
  const int quarter = 2 * total + query_h - key_h;  // 4 * query_exponent
  // Limits of K's multiplier, then of Q's; they overlap for every h of finite inputs.
  const int for_key =
      clamp_int(quarter >> 2, total + kMinMultiplierExponent, total + kMaxMultiplierExponent);
  scale.query_exponent = clamp_int(for_key, gain_exponent - kMaxMultiplierExponent,
                                   gain_exponent - kMinMultiplierExponent);
  scale.key_exponent = total - scale.query_exponent;
  scale.excess_exponent = clamp_int(total - kMaxScoreExponent, 0, kMaxExcessExponent);
  return scale;
}

/// 8 log2(e) softmax_scale, the factor that turns q.k into code units.
OPENVC_HD constexpr float query_gain(float softmax_scale) {
  return kCodeUnitsPerNat * softmax_scale;
}

static_assert(score_scale(8, 8).score_exponent == 0);
static_assert(score_scale(16, 16).score_exponent == 1);
static_assert(score_scale(0, 20).query_exponent == -5 && score_scale(0, 20).key_exponent == 5);
static_assert(score_scale(47, 46).score_exponent == 31 && score_scale(47, 46).excess_exponent == 0);
static_assert(score_scale(47, 48).score_exponent == 31 && score_scale(47, 48).excess_exponent == 1);
static_assert(score_scale(263, 263).query_exponent == 124 &&
                  score_scale(263, 263).key_exponent == 124,
              "inputs at the limit of bfloat16 must not saturate E4M3");

}  // namespace openvc::numerics
