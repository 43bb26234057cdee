// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"

// What one pass over Q, K and V of a head yields, and all that its plan is made from. Sums are in
// the order of canonical_sum.hpp, so they are equal on every backend.
namespace openvc::numerics {

/// Largest magnitude of a tensor's head and its largest row norm.
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

/// Numbers of extra k-steps that the main loops are built for: 0, 1, 2, 4.
inline constexpr int kExtraStepChoices = 4;
[[nodiscard]] OPENVC_HD constexpr int extra_step_choice(int i) {
  return i < kExtraStepChoices - 1 ? i : kMaxExtraSteps;
}

/// Shares of the energies of Q and K that lie outside of the principal axes of each number of
/// steps, from a sample.
struct AxisShares {
  float query[kExtraStepChoices] = {};
  float key[kExtraStepChoices] = {};
  std::int32_t steps = 0;  ///< for which there are axes; 0 for a head without
};

/// Of Q and K over all tokens.
template <int kDim>
struct ScoreStatisticsOf {
  Extent query;
  Extent key;
  float query_squares[kDim] = {};
  float key_sums[kDim] = {};
  float key_squares[kDim] = {};
  AxisShares axes;
};

/// Of V's principal axes, from a sample.
struct ValueAxes {
  float inside = 0.0f;       ///< share of the energy on the axes with residual columns
  float mean_square = 0.0f;  ///< of a row's norm, about the mean if that is removed
  std::int32_t known = 0;    ///< 0 or 1: whether the head has axes
};

/// Of one channel of V over all tokens.
struct ChannelRange {
  float sum = 0.0f;
  float max = -infinity();
  float min = infinity();
};

template <int kDim>
struct HeadStatisticsOf {
  ScoreStatisticsOf<kDim> scores;
  ChannelRange values[kDim] = {};
  bool values_finite = true;
  Extent value_extent;
  ValueAxes value_axes;
};

using ScoreStatistics = ScoreStatisticsOf<kHeadDim>;
using HeadStatistics = HeadStatisticsOf<kHeadDim>;

}  // namespace openvc::numerics
