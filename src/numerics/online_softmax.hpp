// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/exp_cast.hpp"
#include "numerics/half.hpp"
#include "numerics/head_rule.hpp"
#include "numerics/score_scale.hpp"

// State of one row while it walks over the key blocks. Scores arrive as binary16 values that count
// 2^score_exponent code units; masked scores are -inf.
namespace openvc::numerics {

struct RowState {
  float row_max = -infinity();  // running maximum, binary16 value
  float offset = 0.0f;          // code = score * 2^score_exponent + offset
  float sum = 0.0f;             // of decoded codes relative to `offset`
};

/// Raises the running maximum to that of the next block and returns the factor by which everything
/// accumulated so far must be multiplied (exactly 1 where nothing changed).
OPENVC_HD constexpr float raise_row_max(RowState& row, float block_max, const HeadRule& rule) {
  if (!(block_max > row.row_max)) return 1.0f;
  const bool first = row.row_max == -infinity();
  row.row_max = block_max;
  const float offset =
      rule.wide() ? static_cast<float>(kPeakCode) - block_max * exp2_int(rule.score_exponent)
                  : row_offset(block_max);
  const float factor = first ? 1.0f : exp2_code_units(offset - row.offset);
  row.offset = offset;
  row.sum = row.sum * factor;
  return factor;
}

/// Code of one score relative to the row's maximum.
OPENVC_HD constexpr std::uint8_t probability_code(float score, const RowState& row,
                                                  const HeadRule& rule) {
  float x = score;
  float offset = row.offset;
  if (rule.wide()) {
    if (row.row_max == -infinity()) {
      x = score;  // nothing but masked (or NaN) scores so far
    } else {
      x = half_to_float(float_to_half(score - row.row_max)) * exp2_int(rule.score_exponent);
    }
    offset = static_cast<float>(kPeakCode);
  }
  return rule.tail_correction != 0 ? exp_cast_tail(x, offset) : exp_cast(x, offset);
}

/// Natural logarithm of the sum over keys of exp(softmax_scale q.k), given `log_sum` = ln(row.sum).
/// Removing the mean of K shifts all logits of a row by softmax_scale q.mean; `smoothing_shift` is
/// that in steps of 2^excess_exponent, and so are the scores (score_scale.hpp). Infinite where the
/// sum leaves binary32, as if the exact result were rounded to it; never NaN for finite inputs.
OPENVC_HD constexpr float log_sum_exp(const RowState& row, float log_sum, float smoothing_shift,
                                      int excess_exponent) {
  if (row.row_max == -infinity() && row.sum == 0.0f) return -infinity();
  if (excess_exponent == 0) {
    const float reference = (static_cast<float>(kUnitCode) - row.offset) * kNatsPerCodeUnit;
    return reference + log_sum - kLogMeanRatio + smoothing_shift;
  }
  // Only the score is scaled: a row whose scores are all zero keeps its logarithm of a count.
  const float score = (static_cast<float>(kPeakCode) - row.offset) * kNatsPerCodeUnit;
  const float above_score =
      static_cast<float>(kUnitCode - kPeakCode) * kNatsPerCodeUnit + log_sum - kLogMeanRatio;
  // In two factors, because the whole may be beyond 2^127. Both steps only grow, nothing is lost.
  const int half = excess_exponent / 2;
  const float logit = (score + smoothing_shift) * exp2_int(half) * exp2_int(excess_exponent - half);
  return logit + above_score;
}

}  // namespace openvc::numerics
