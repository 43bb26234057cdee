// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/head_plan.hpp"
#include "numerics/plan_scores.hpp"
#include "numerics/score_scale.hpp"
#include "numerics/statistics.hpp"
#include "openvc/options.hpp"

namespace openvc::numerics {

/// Affine code of one channel: v ~ mean + scale * e4m3. The mean returns in the epilogue for free,
/// because the weights of a row sum to one; without it a truncating accumulator stays unbiased.
struct ChannelCode {
  float mean = 0.0f;
  float scale = 0.0f;       // spread / 448, applied to the output
  float multiplier = 0.0f;  // 448 / spread, applied to the input
};

/// Below this spread a channel counts as constant. From here on 448 / spread and spread / 448 are
/// normal numbers.
inline constexpr float kMinSpread = kContract.min_spread;

/// A mean below this share of the channel's largest magnitude stays. Shifting 16-bit inputs by a
/// fraction of their rounding step correlates the rounding errors of a channel, which costs more
/// than so small a mean does (docs/numerics.md section 4).
inline constexpr float kMinMeanShare = kContract.min_mean_share;

/// Mean of a channel that is worth removing; zero if it is small or removing it could overflow.
/// tokens < 2^27.
OPENVC_HD constexpr float channel_mean(const ChannelRange& range, std::int64_t tokens) {
  const float size =
      magnitude(range.max) > magnitude(range.min) ? magnitude(range.max) : magnitude(range.min);
  if (!(size < kMaxCentredMagnitude)) return 0.0f;
  const float mean = range.sum / static_cast<float>(tokens);
  return magnitude(mean) < kMinMeanShare * size ? 0.0f : mean;
}

/// Largest distance from the mean.
OPENVC_HD constexpr float channel_spread(const ChannelRange& range, float mean) {
  const float above = range.max - mean;
  const float below = mean - range.min;
  return above > below ? above : below;
}

/// `spread` is that of the channel, or of the whole head for a per-head scale. A head with
/// non-finite elements gets NaN (see quantize() in qk_quantize.hpp).
OPENVC_HD constexpr ChannelCode channel_code(float mean, float spread, bool finite) {
  if (!finite) return {quiet_nan(), quiet_nan(), quiet_nan()};
  if (spread < kMinSpread) return {mean, 0.0f, 0.0f};
  return {mean, spread / kE4m3Max, kE4m3Max / spread};
}

/// Prediction of V's rounding: an E4M3 number about the removed mean, but for the share of the
/// energy that has residual columns. That is a sum of rounded numbers and may exceed 1.
OPENVC_HD inline Prediction predict_value_rounding(float inside) {
  return {kContract.rounding_error * sqrtf(inside < 1.0f ? 1.0f - inside : 0.0f), 0.0f};
}

/// norm^2 <= 2^this of every row of V less its means.
template <int kDim = kHeadDim>
OPENVC_HD constexpr int centred_value_norm_exponent(const Extent& value, float mean_squares) {
  return mean_squares > 0.0f ? centred_key_norm_exponent<kDim>(value, mean_squares)
                             : squared_norm_exponent<kDim>(value);
}

/// Whether V of a head is coded on its axes: they hold enough of its energy, and no row is so much
/// longer than the others that these would be subnormal in the scale of all.
OPENVC_HD constexpr bool values_use_axes(const ValueAxes& axes, const Extent& value,
                                         int norm_exponent, const NumericOptions& options) {
  constexpr float kLargest = exp2_int(kContract.value_axes_max_exponent);
  constexpr float kSmallest = exp2_int(kMinSafeExponent);
  const float magnitude = value.magnitude();
  if (axes.known == 0 || options.value_axes == Choice::never) return false;
  if (!(magnitude < kLargest && magnitude >= kSmallest)) return false;
  if (options.value_axes == Choice::always) return true;
  return axes.inside >= kContract.value_axes_min_share &&
         exp2_int(norm_exponent) <= exp2_int(kContract.value_axes_max_peak) * axes.mean_square;
}

/// The code of all axes: a power of two that takes the largest row norm, which bounds every element
/// of a rotated row, to E4M3's range. 448 2^k >= 2^(norm_exponent / 2).
OPENVC_HD constexpr ChannelCode axis_code(float mean, int norm_exponent) {
  static_assert(kE4m3Max == 0x1.Cp8f);
  const int exponent = (norm_exponent >> 1) - 8;
  return {mean, exp2_int(exponent), exp2_int(-exponent)};
}

/// Mean of a channel that is removed before V is multiplied by a basis: all of it.
OPENVC_HD constexpr float axes_mean(float sum, std::int64_t tokens, bool smooth) {
  return smooth ? sum / static_cast<float>(tokens) : 0.0f;
}

/// The part of a head's plan that concerns V.
template <int kDim>
OPENVC_HD inline void plan_values(const HeadStatisticsOf<kDim>& statistics, std::int64_t keys,
                                  const NumericOptions& options, HeadPlanOf<kDim>& plan) {
  const Extent& extent = statistics.value_extent;
  if (extent.finite() && extent.magnitude_bits != 0) {
    float means[kDim] = {};
    for (int c = 0; c < kDim; ++c) {
      means[c] = axes_mean(statistics.values[c].sum, keys, options.smooth_values);
    }
    const float squares = row_sum_squares<kDim>([&](int c) { return means[c]; });
    const int norm_exponent = centred_value_norm_exponent<kDim>(extent, squares);
    if (values_use_axes(statistics.value_axes, extent, norm_exponent, options)) {
      for (int c = 0; c < kDim; ++c) {
        const ChannelCode code = axis_code(means[c], norm_exponent);
        plan.value_means[c] = code.mean;
        plan.value_scales[c] = code.scale;
        plan.value_multipliers[c] = code.multiplier;
      }
      plan.values_on_axes = 1;
      plan.value_rounding = predict_value_rounding(statistics.value_axes.inside);
      return;
    }
  }
  float spreads[kDim] = {};
  float largest = 0.0f;
  for (int c = 0; c < kDim; ++c) {
    const ChannelRange& range = statistics.values[c];
    plan.value_means[c] = options.smooth_values ? channel_mean(range, keys) : 0.0f;
    spreads[c] = channel_spread(range, plan.value_means[c]);
    if (spreads[c] > largest) largest = spreads[c];
  }
  for (int c = 0; c < kDim; ++c) {
    const float spread = options.value_scale == ValueScale::per_head ? largest : spreads[c];
    const ChannelCode code = channel_code(plan.value_means[c], spread, statistics.values_finite);
    plan.value_means[c] = code.mean;
    plan.value_scales[c] = code.scale;
    plan.value_multipliers[c] = code.multiplier;
  }
  plan.value_rounding = predict_value_rounding(0.0f);
}

/// Position of v on the channel's E4M3 grid, before rounding.
OPENVC_HD constexpr float channel_coordinate(float v, const ChannelCode& code) {
  return (v - code.mean) * code.multiplier;
}

}  // namespace openvc::numerics
