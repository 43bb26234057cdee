// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/head_plan.hpp"
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

/// Prediction of V's rounding: an E4M3 number about the removed mean.
OPENVC_HD constexpr Prediction predict_value_rounding() { return {kContract.rounding_error, 0.0f}; }

/// The part of a head's plan that concerns V.
template <int kDim>
OPENVC_HD constexpr void plan_values(const HeadStatisticsOf<kDim>& statistics, std::int64_t keys,
                                     const NumericOptions& options, HeadPlanOf<kDim>& plan) {
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
  plan.value_rounding = predict_value_rounding();
}

/// Position of v on the channel's E4M3 grid, before rounding.
OPENVC_HD constexpr float channel_coordinate(float v, const ChannelCode& code) {
  return (v - code.mean) * code.multiplier;
}

}  // namespace openvc::numerics
