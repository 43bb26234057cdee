// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/exp_cast.hpp"
#include "numerics/half.hpp"
#include "numerics/head_rule.hpp"
#include "numerics/score_scale.hpp"

// The softmax of one row while it walks over the key blocks: anchored ExpCast.
//
// Every key block is a softmax of its own, whose largest score gets the peak code whatever other
// blocks hold; what E4M3 and ExpCast's piecewise linear map do to a weight depends on the block
// alone. Blocks are joined in binary32 by the weight of their largest score, 2^(top / 8), so that
// this score's weight is exact and the mean error of the others, which are rounded relative to it,
// cancels against the denominator that sums the same codes:
//
//   top = max(scores of the block)                        offset = block_offset(top)
//   accumulator += 2^((top - reference) / 8) * sum over keys of decoded(code) [v | 1]
//
// Scores arrive as binary16 values that count 2^score_exponent code units; masked scores are -inf.
namespace openvc::numerics {

/// Top of a block of which a row sees no key: the least binary16 number, so that all codes are 0.
inline constexpr float kLeastTop = -65504.0f;

struct RowState {
  float reference = 0.0f;  // score whose weight is 1, binary16 value; moves in wide heads alone
  float sum = 0.0f;        // of decoded codes times the weights of their blocks; 0: no key so far
};

/// State before the first block.
OPENVC_HD constexpr RowState empty_row(const HeadRule& rule) {
  return {.reference = rule.wide() ? kLeastTop : 0.0f, .sum = 0.0f};
}

/// What a key block does to the scores of one row, and to what was accumulated before.
struct BlockCast {
  float top = kLeastTop;  // binary16 value
  float offset = 0.0f;    // code = score + offset; of narrow heads
  float weight = 0.0f;    // of the block's sums
  float rescale = 1.0f;   // of everything accumulated before; exactly 1 in narrow heads
};

/// Begins a block whose largest score is `top`, at least kLeastTop; NaN scores do not count, and a
/// block of nothing else leaves kLeastTop too. Moves the row's reference.
OPENVC_HD constexpr BlockCast begin_block(RowState& row, float top, const HeadRule& rule) {
  BlockCast block{.top = top};
  if (!rule.wide()) {
    block.offset = block_offset(top);
    block.weight = exp2_code_units(top);
    return block;
  }
  const float units = exp2_int(rule.score_exponent);
  if (top > row.reference) {
    block.rescale = exp2_code_units((row.reference - top) * units);
    row.reference = top;
    row.sum = row.sum * block.rescale;
  }
  block.weight = exp2_code_units((top - row.reference) * units);
  return block;
}

/// Code of one score of the block.
OPENVC_HD constexpr std::uint8_t probability_code(float score, const BlockCast& block,
                                                  const HeadRule& rule) {
  if (!rule.wide()) return exp_cast(score, block.offset);
  const float below = half_to_float(float_to_half(score - block.top));
  return exp_cast(below * exp2_int(rule.score_exponent), static_cast<float>(kPeakCode));
}

/// Ends the block: `block_sum` is the sum of its decoded codes.
OPENVC_HD constexpr void end_block(RowState& row, const BlockCast& block, float block_sum) {
  row.sum = row.sum + block.weight * block_sum;
}

/// ln(448): the largest score of a block adds this code times the weight of its block.
inline constexpr float kLogPeakValue = 6.10479323f;
static_assert(kE4m3Max == 448.0f);

/// Natural logarithm of the sum over keys of exp(softmax_scale q.k), given `log_sum` = ln(row.sum).
/// Removing the mean of K shifts all logits of a row by softmax_scale q.mean; `smoothing_shift` is
/// that in steps of 2^excess_exponent, and so are the scores (score_scale.hpp). Infinite where the
/// sum leaves binary32, as if the exact result were rounded to it; never NaN for finite inputs.
OPENVC_HD constexpr float log_sum_exp(const RowState& row, const HeadRule& rule, float log_sum,
                                      float smoothing_shift) {
  if (row.sum == 0.0f) return -infinity();
  const float score = row.reference * exp2_int(rule.score_exponent) * kNatsPerCodeUnit;
  const float above_score = log_sum - kLogPeakValue;
  if (rule.excess_exponent == 0) return score + above_score + smoothing_shift;
  // Only the score is scaled: a row whose scores are all zero keeps its logarithm of a count. In
  // two factors, because the whole may be beyond 2^127. Both steps only grow, nothing is lost.
  const int half = rule.excess_exponent / 2;
  const float logit =
      (score + smoothing_shift) * exp2_int(half) * exp2_int(rule.excess_exponent - half);
  return logit + above_score;
}

}  // namespace openvc::numerics
