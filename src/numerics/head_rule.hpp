// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"

namespace openvc::numerics {

/// What a main loop must know about a head: one 32-bit word of the prepared inputs.
struct HeadRule {
  std::uint8_t score_exponent = 0;   ///< accumulated scores count 2^score_exponent code units
  std::uint8_t extra_steps = 0;      ///< k-steps of QK residual columns, 0..kMaxExtraSteps
  std::uint8_t tail_correction = 0;  ///< 0 or 1
  std::uint8_t excess_exponent =
      0;  ///< log-sum-exp alone: true scores are 2^excess_exponent larger

  /// Scores beyond the range in which binary16 holds integer offsets (norm product > 2^15.5 code
  /// units). The maximum is then subtracted before the scores are scaled.
  [[nodiscard]] OPENVC_HD constexpr bool wide() const { return score_exponent > 0; }
};
static_assert(sizeof(HeadRule) == 4);

OPENVC_HD constexpr HeadRule head_rule(int score_exponent, bool tail_correction,
                                       int extra_steps = 0, int excess_exponent = 0) {
  HeadRule rule;
  rule.score_exponent = static_cast<std::uint8_t>(score_exponent);
  rule.extra_steps = static_cast<std::uint8_t>(extra_steps);
  rule.tail_correction = tail_correction ? 1 : 0;
  rule.excess_exponent = static_cast<std::uint8_t>(excess_exponent);
  return rule;
}

}  // namespace openvc::numerics
