// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"

namespace openvc::numerics {

/// What a main loop must know about a head: one 32-bit word of the prepared inputs.
struct HeadRule {
  std::uint8_t score_exponent = 0;  ///< accumulated scores count 2^score_exponent code units
  std::uint8_t extra_steps = 0;     ///< k-steps of QK residual columns, 0..kMaxExtraSteps
  std::uint8_t flags = 0;           ///< of the constants below
  std::uint8_t excess_exponent =
      0;  ///< log-sum-exp alone: true scores are 2^excess_exponent larger

  static constexpr std::uint8_t kWide = 1;
  static constexpr std::uint8_t kValuesOnAxes = 2;

  /// Scores may differ by more than binary32 has room for, or lie where binary16 holds no integer
  /// offsets. The block's maximum is then subtracted before the scores are scaled, and weights of
  /// blocks are relative to the running maximum. Scores of other heads are at most
  /// kNarrowScoreLimit (plan_scores.hpp) in magnitude.
  [[nodiscard]] OPENVC_HD constexpr bool wide() const { return (flags & kWide) != 0; }
  /// V is coded on axes of its own: its averages are still to be multiplied by the head's basis
  /// (schedule::PreparedLayout::value_bases).
  [[nodiscard]] OPENVC_HD constexpr bool values_on_axes() const {
    return (flags & kValuesOnAxes) != 0;
  }
};
static_assert(sizeof(HeadRule) == 4);

OPENVC_HD constexpr HeadRule head_rule(int score_exponent, bool wide, int extra_steps = 0,
                                       int excess_exponent = 0, bool values_on_axes = false) {
  HeadRule rule;
  rule.score_exponent = static_cast<std::uint8_t>(score_exponent);
  rule.extra_steps = static_cast<std::uint8_t>(extra_steps);
  rule.flags = static_cast<std::uint8_t>((wide ? HeadRule::kWide : 0) |
                                         (values_on_axes ? HeadRule::kValuesOnAxes : 0));
  rule.excess_exponent = static_cast<std::uint8_t>(excess_exponent);
  return rule;
}

}  // namespace openvc::numerics
