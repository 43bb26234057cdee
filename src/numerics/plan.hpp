// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/canonical_sum.hpp"
#include "numerics/contract.hpp"
#include "numerics/hadamard.hpp"
#include "numerics/qk_quantize.hpp"
#include "numerics/score_scale.hpp"
#include "openvc/options.hpp"

// What the preparation decides for one head from the statistics of its first pass: scales of Q and
// K, which channels get residual columns, whether the head is rotated. docs/numerics.md section 2
// derives the predictors and shows how well they hold on captured attention.
namespace openvc::numerics {

/// Variance of the relative error of a product of two E4M3 numbers: rounding to three mantissa bits
/// leaves a relative error of 0.026 (RMS over an octave) in each factor.
inline constexpr float kProductErrorVariance = 2.0f * 0.026f * 0.026f;

/// Numbers of extra k-steps that the main loops are built for.
[[nodiscard]] OPENVC_HD constexpr bool is_extra_step_choice(int steps) {
  return steps == 0 || steps == 1 || steps == 2 || steps == kMaxExtraSteps;
}

/// Rotation is worth it below this share of the predicted variance without it. The prediction is
/// less certain than that of residual columns: a looser rule hurts some captured heads.
inline constexpr float kRotationVarianceShare = 0.6f;

inline constexpr int kMaxResidualChannels = kMaxExtraSteps * kResidualChannelsPerStep;

inline constexpr float kFloatMax = 0x1.FFFFFEp127f;

/// Sums over all tokens of one head, in canonical order.
struct ScoreStatistics {
  Extent query;
  Extent key;
  float query_squares[kHeadDim] = {};
  float key_sums[kHeadDim] = {};
  float key_squares[kHeadDim] = {};
};

/// A positive gain as mantissa * 2^exponent. Kept apart because their product with other scales may
/// leave the range of binary32 although the final multiplier does not.
struct SplitGain {
  float mantissa = 1.0f;
  int exponent = 0;
};

OPENVC_HD constexpr SplitGain split_gain(float gain) {
  // The limits keep 2^-exponent a normal number; infinity counts as 2^128.
  const float finite = gain < kFloatMax ? gain : kFloatMax;
  const int exponent = clamp_int(floor_log2(finite), kFloatMinNormalExponent, 126);
  return {finite * exp2_int(-exponent), exponent};
}

/// norm^2 <= 2^h of every row of gain * Q.
OPENVC_HD constexpr int query_norm_exponent(const Extent& query, const SplitGain& gain) {
  if (has_safe_squares(query)) {
    const float sum_squares = query.row_sum_squares * gain.mantissa * gain.mantissa;
    return floor_log2(sum_squares) + 1 + 2 * gain.exponent;
  }
  return squared_norm_exponent(query) + 2 * (ceil_log2(gain.mantissa) + gain.exponent);
}

/// norm^2 <= 2^h of every row of K - mean: |k - mean|^2 <= 2 (|k|^2 + |mean|^2).
OPENVC_HD constexpr int centred_key_norm_exponent(const Extent& key, float mean_sum_squares) {
  Extent centred;
  centred.magnitude_bits = float_bits(2.0f * key.magnitude());
  centred.row_sum_squares = 2.0f * (key.row_sum_squares + mean_sum_squares);
  return squared_norm_exponent(centred);
}

/// Mean of one channel of K; zero where removing it could overflow, or is not wanted.
OPENVC_HD constexpr float key_mean(float sum, std::int64_t tokens, const Extent& key, bool smooth) {
  if (!smooth || !(key.magnitude() < kMaxCentredMagnitude)) return 0.0f;
  return sum / static_cast<float>(tokens);
}

OPENVC_HD constexpr float clamp_energy(float x) {
  return x < kFloatMax ? (x > 0.0f ? x : 0.0f) : kFloatMax;
}

/// Mean square of one channel of gain * Q.
OPENVC_HD constexpr float query_energy(float sum_squares, std::int64_t tokens, float gain) {
  return clamp_energy(gain * (gain * (sum_squares / static_cast<float>(tokens))));
}

/// Variance of one channel of K about the mean that is removed. Where the sum of squares has
/// overflowed nothing is known, which counts as the largest energy.
OPENVC_HD constexpr float key_energy(float sum_squares, std::int64_t tokens, float mean) {
  const float mean_square = sum_squares / static_cast<float>(tokens);
  if (!(mean_square < kFloatMax)) return kFloatMax;
  return clamp_energy(mean_square - mean * mean);
}

/// Position of channel c when all are sorted by descending energy, ties by ascending index.
OPENVC_HD constexpr int energy_rank(const float* energies, int c) {
  int rank = 0;
  for (int other = 0; other < kHeadDim; ++other) {
    if (energies[other] > energies[c] || (energies[other] == energies[c] && other < c)) ++rank;
  }
  return rank;
}

/// Sum over the channels that `extra_steps` leave without residual columns.
OPENVC_HD constexpr float uncovered_energy(const float* energies, const int* ranks,
                                           int extra_steps) {
  float left[kHeadDim] = {};
  for (int c = 0; c < kHeadDim; ++c) {
    left[c] = ranks[c] < extra_steps * kResidualChannelsPerStep ? 0.0f : energies[c];
  }
  return sum_balanced(left, kHeadDim);
}

/// How Q and K of one head are quantised.
struct ScorePlan {
  float query_multiplier = 1.0f;
  float key_multiplier = 1.0f;
  int score_exponent = 0;
  int extra_steps = 0;
  bool rotated = false;
  float score_error_variance = 0.0f;  ///< predicted, code units squared
  float key_means[kHeadDim] = {};
  /// Channels with residual columns, by rank; step s, position p holds entry 16 s + p.
  std::uint8_t residual_channels[kMaxResidualChannels] = {};
};

/// Rotation multiplies rows of Q by H 2^-3 and rows of K by H 2^-4: squared norms by 2 and by 1/2.
inline constexpr int kRotatedQueryNormShift = 1;
inline constexpr int kRotatedKeyNormShift = -1;
static_assert(kQueryRotationScale * kQueryRotationScale * kHeadDim == 2.0f);
static_assert(kKeyRotationScale * kKeyRotationScale * kHeadDim == 0.5f);

/// Rotation adds 128 elements of a row; larger ones could overflow.
OPENVC_HD constexpr bool can_rotate(const Extent& query, const Extent& key) {
  return query.magnitude() < kMaxCentredMagnitude && key.magnitude() < kMaxCentredMagnitude;
}

/// The number of k-steps that minimises score variance + price * k-steps, ties to fewer. A price
/// spends the steps where they remove most; a plain limit on the variance needs about a third more
/// of them for the same error of captured heads (docs/numerics.md section 2).
OPENVC_HD constexpr void choose_extra_steps(ScorePlan& plan, const float* products,
                                            const int* ranks, int limit, float price) {
  for (int steps = 0; steps <= limit; ++steps) {
    if (!is_extra_step_choice(steps)) continue;
    const float variance = kProductErrorVariance * uncovered_energy(products, ranks, steps);
    const float cost = price * static_cast<float>(steps - plan.extra_steps);
    // A variance that overflowed is worth any number of steps.
    const bool better = !is_finite(variance) || variance + cost < plan.score_error_variance;
    if (steps > 0 && !better) continue;
    plan.extra_steps = steps;
    plan.score_error_variance = variance;
  }
}

/// Chooses the number of residual columns and the rotation. Fills extra_steps, rotated,
/// score_error_variance and residual_channels of the plan.
OPENVC_HD constexpr void plan_score_error(ScorePlan& plan, const float* query_energies,
                                          const float* key_energies, Choice rotation,
                                          const NumericOptions& options) {
  float products[kHeadDim] = {};
  for (int c = 0; c < kHeadDim; ++c) products[c] = query_energies[c] * key_energies[c];
  int ranks[kHeadDim] = {};
  for (int c = 0; c < kHeadDim; ++c) ranks[c] = energy_rank(products, c);

  choose_extra_steps(plan, products, ranks,
                     rotation == Choice::always ? 0 : options.max_extra_steps,
                     options.score_error_target * options.score_error_target);
  for (int c = 0; c < kHeadDim; ++c) {
    if (ranks[c] < plan.extra_steps * kResidualChannelsPerStep) {
      plan.residual_channels[ranks[c]] = static_cast<std::uint8_t>(c);
    }
  }
  if (rotation == Choice::never || plan.extra_steps > 0) return;

  // Rotation spreads the energy of both tensors evenly over the channels.
  float query_total[kHeadDim] = {};
  float key_total[kHeadDim] = {};
  for (int c = 0; c < kHeadDim; ++c) {
    query_total[c] = query_energies[c];
    key_total[c] = key_energies[c];
  }
  const float rotated_variance =
      kProductErrorVariance *
      (clamp_energy(sum_balanced(query_total, kHeadDim)) / static_cast<float>(kHeadDim) *
       clamp_energy(sum_balanced(key_total, kHeadDim)));
  plan.rotated = rotation == Choice::always ||
                 rotated_variance < kRotationVarianceShare * plan.score_error_variance;
  if (plan.rotated) plan.score_error_variance = rotated_variance;
}

/// The whole plan of one head. A tensor with a non-finite element gets a NaN multiplier.
OPENVC_HD constexpr ScorePlan plan_scores(const ScoreStatistics& statistics, std::int64_t queries,
                                          std::int64_t keys, float softmax_scale,
                                          const NumericOptions& options) {
  ScorePlan plan;
  const Extent& query = statistics.query;
  const Extent& key = statistics.key;
  if (!query.finite()) plan.query_multiplier = quiet_nan();
  if (!key.finite()) plan.key_multiplier = quiet_nan();
  if (!query.finite() || !key.finite()) return plan;

  const float gain = query_gain(softmax_scale);
  const SplitGain split = split_gain(gain);
  float query_energies[kHeadDim] = {};
  float key_energies[kHeadDim] = {};
  for (int c = 0; c < kHeadDim; ++c) {
    plan.key_means[c] = key_mean(statistics.key_sums[c], keys, key, options.smooth_keys);
    query_energies[c] = query_energy(statistics.query_squares[c], queries, gain);
    key_energies[c] = key_energy(statistics.key_squares[c], keys, plan.key_means[c]);
  }
  const Choice rotation = can_rotate(query, key) ? options.rotation : Choice::never;
  plan_score_error(plan, query_energies, key_energies, rotation, options);

  ScoreScale scale;
  if (query.magnitude_bits != 0 && key.magnitude_bits != 0) {
    const float mean_sum_squares = row_sum_squares([&](int c) { return plan.key_means[c]; });
    int query_h = query_norm_exponent(query, split);
    int key_h = mean_sum_squares > 0.0f ? centred_key_norm_exponent(key, mean_sum_squares)
                                        : squared_norm_exponent(key);
    if (plan.rotated) {
      query_h += kRotatedQueryNormShift;
      key_h += kRotatedKeyNormShift;
    }
    scale = score_scale(query_h, key_h, split.exponent);
  }
  plan.query_multiplier = split.mantissa * exp2_int(split.exponent - scale.query_exponent);
  plan.key_multiplier = exp2_int(-scale.key_exponent);
  plan.score_exponent = scale.score_exponent;
  return plan;
}

}  // namespace openvc::numerics
