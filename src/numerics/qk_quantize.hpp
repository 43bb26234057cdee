// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/score_scale.hpp"

// Quantisation of Q and K, and the residual columns that protect their dot product.
//
// E4M3 keeps three mantissa bits, so rounding Q and K is the largest error of attention heads whose
// scores are large. In those heads the energy sits in few channels. For the selected channels the
// contraction gets two more columns,
//
//   S += q_lo * k_hi + q_hi * k_lo,     x_hi = E4M3(x), x_lo = E4M3(x - x_hi),
//
// which leaves only the products of two residuals and the unselected channels in error. Sixteen
// channels are one more tensor-core k-step. A step's 32 columns are [lo 16 | hi 16] for Q and
// [hi 16 | lo 16] for K.
namespace openvc::numerics {

/// A residual is at most 2^-4 of its value. Multiplying it by 2^kResidualBalance and dividing its
/// partner in the other tensor by the same keeps both inside E4M3's normal range.
inline constexpr int kResidualBalance = kContract.residual_balance;

/// x * multiplier rounded to E4M3, with its decoded value and what the rounding left.
struct Quantized {
  std::uint8_t code;
  float value;
  float residual;
};

/// `multiplier` is NaN for a head that holds non-finite elements, which makes the whole head NaN: a
/// scale cannot be derived from it, and a wrong finite number would hide the fault.
OPENVC_HD constexpr Quantized quantize(float x, float multiplier) {
  const float scaled = x * multiplier;
  const std::uint8_t code = e4m3_encode(scaled);
  const float value = e4m3_decode(code);
  return {code, value, scaled - value};
}

/// Byte of the residual in its own column.
OPENVC_HD constexpr std::uint8_t encode_low(const Quantized& x) {
  return e4m3_encode(x.residual * exp2_int(kResidualBalance));
}

/// Byte of the rounded value in the column that meets the other tensor's residual.
OPENVC_HD constexpr std::uint8_t encode_high(const Quantized& x) {
  return e4m3_encode(x.value * exp2_int(-kResidualBalance));
}

/// What removing the means of K takes from every score of a query, in nats; `dot` = q.mean.
OPENVC_HD constexpr float smoothing_shift(float softmax_scale, float dot) {
  return with_canonical_nan(softmax_scale * dot);
}

/// Whether that is beyond binary32, or the head's log-sum-exp wants it in larger steps. It is then
/// computed from rows in the scale of their codes, where no sum can overflow.
OPENVC_HD constexpr bool needs_scaled_shift(float dot, int excess_exponent) {
  return excess_exponent > 0 || !is_finite(dot);
}

/// The same shift in steps of 2^excess_exponent nats. `scaled_dot` is that of the query and the
/// means, both times the multipliers of their tensors; its unit is `shift_unit` of those steps in
/// code units (ScorePlan).
OPENVC_HD constexpr float scaled_smoothing_shift(float scaled_dot, float shift_unit) {
  return with_canonical_nan(scaled_dot * shift_unit * kNatsPerCodeUnit);
}

/// Byte offsets inside the 32 columns of a step for the channel at position 0..15 of that step.
OPENVC_HD constexpr int query_low_column(int position) { return position; }
OPENVC_HD constexpr int query_high_column(int position) {
  return position + kResidualChannelsPerStep;
}
OPENVC_HD constexpr int key_low_column(int position) { return position + kResidualChannelsPerStep; }
OPENVC_HD constexpr int key_high_column(int position) { return position; }

}  // namespace openvc::numerics
