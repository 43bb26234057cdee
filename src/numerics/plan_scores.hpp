// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/canonical_sum.hpp"
#include "numerics/contract.hpp"
#include "numerics/energy_rank.hpp"
#include "numerics/exp_cast.hpp"
#include "numerics/hadamard.hpp"
#include "numerics/head_plan.hpp"
#include "numerics/qk_quantize.hpp"
#include "numerics/score_scale.hpp"
#include "numerics/statistics.hpp"
#include "openvc/options.hpp"

// The plan of Q and K of one head: scales, which channels get residual columns, whether the head is
// rotated. docs/numerics.md section 2 derives the predictors and shows how well they hold on
// captured attention.
namespace openvc::numerics {

/// Variance of the relative error of a product of two E4M3 numbers: rounding to three mantissa bits
/// leaves a relative error of 0.026 (RMS over an octave) in each factor.
inline constexpr float kProductErrorVariance =
    2.0f * kContract.rounding_error * kContract.rounding_error;

/// Rotation is worth it below this share of the predicted variance without it. The prediction is
/// less certain than that of residual columns: a looser rule hurts some captured heads.
inline constexpr float kRotationVarianceShare = kContract.rotation_variance_share;

inline constexpr float kFloatMax = 0x1.FFFFFEp127f;

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
template <int kDim = kHeadDim>
OPENVC_HD constexpr int query_norm_exponent(const Extent& query, const SplitGain& gain) {
  if (has_safe_squares(query)) {
    const float sum_squares = query.row_sum_squares * gain.mantissa * gain.mantissa;
    return floor_log2(sum_squares) + 1 + 2 * gain.exponent;
  }
  return squared_norm_exponent<kDim>(query) + 2 * (ceil_log2(gain.mantissa) + gain.exponent);
}

/// norm^2 <= 2^h of every row of K - mean: |k - mean|^2 <= 2 (|k|^2 + |mean|^2).
template <int kDim = kHeadDim>
OPENVC_HD constexpr int centred_key_norm_exponent(const Extent& key, float mean_sum_squares) {
  Extent centred;
  centred.magnitude_bits = float_bits(2.0f * key.magnitude());
  centred.row_sum_squares = 2.0f * (key.row_sum_squares + mean_sum_squares);
  return squared_norm_exponent<kDim>(centred);
}

/// Scores of narrow heads, in code units: what the softmax of blocks holds of them without a
/// running reference (online_softmax.hpp). Rounding of Q and K and residual columns add to the
/// bound of the exact scores what kTwiceLog2ScoreLimit names. Weight of a block, codes of P and of
/// V, and the number of keys then fit into binary32:
inline constexpr float kNarrowScoreLimit = kContract.narrow_score_limit;
inline constexpr std::int64_t kNarrowMaxKeys = kContract.narrow_max_keys;
static_assert(kNarrowScoreLimit * 1.0625 * 1.0625 * 1.125 / kE4m3CodesPerOctave +
                      2 * ceil_log2(kE4m3Max) + ceil_log2(kNarrowMaxKeys) <
                  kFloatMaxExponent,
              "no sum of a narrow head overflows");
static_assert(kPeakCode + kNarrowScoreLimit * 1.0625 * 1.0625 * 1.125 < kExactOffsets);

/// |k - mean|^2 of every row of K, at most: (1 + t) |k|^2 + (1 + 1/t) |mean|^2 for any t > 0.
OPENVC_HD constexpr float centred_key_bound(const Extent& key, float mean_sum_squares) {
  float least = infinity();
  for (int halvings = 0; halvings <= 4; halvings += 2) {  // t = 1, 1/4, 1/16
    const float t = exp2_int(-halvings);
    const float bound = (1.0f + t) * key.row_sum_squares + (1.0f + 1.0f / t) * mean_sum_squares;
    if (bound < least) least = bound;
  }
  return least;
}

/// Whether no score of the head can leave +-kNarrowScoreLimit (Cauchy-Schwarz).
OPENVC_HD constexpr bool is_narrow(const Extent& query, const Extent& key, float mean_sum_squares,
                                   const SplitGain& gain, std::int64_t keys) {
  if (keys > kNarrowMaxKeys) return false;
  if (query.magnitude_bits == 0 || key.magnitude_bits == 0) return true;
  if (!has_safe_squares(query) || !has_safe_squares(key)) return false;
  const float query_bound = query.row_sum_squares * gain.mantissa * gain.mantissa;
  const float product = query_bound * centred_key_bound(key, mean_sum_squares);
  // 2^(2 exponent) in two factors: a factor alone may overflow, where the other is small.
  const float factor = exp2_int(gain.exponent);
  return product * factor * factor <= kNarrowScoreLimit * kNarrowScoreLimit;
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

OPENVC_HD constexpr bool has_residual_columns(int rank, int extra_steps) {
  return rank < extra_steps * kResidualChannelsPerStep;
}

/// Sums over the channels of one head, in canonical order, that its plan is decided from. A backend
/// may form them by as many threads as it likes.
struct ScoreSums {
  float uncovered[kExtraStepChoices] = {};  ///< products of energies that a choice leaves
  float mixed[kExtraStepChoices] = {};      ///< the same on principal axes
  float query_energy = 0.0f;
  float key_energy = 0.0f;
  float mean_squares = 0.0f;  ///< row_sum_squares() of the means of K
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

/// Principal axes are worth it below this share of the predicted variance without them.
inline constexpr float kAxesVarianceShare = kContract.axes_variance_share;

/// Whether a head is large enough for principal axes. They cost the preparation some 0.3 ms on a
/// GPU, which short calls cannot earn back.
OPENVC_HD constexpr bool earns_axes(std::int64_t queries, std::int64_t keys) {
  constexpr std::int64_t kMinScores = std::int64_t{1} << kContract.min_log2_axes_scores;
  return queries >= ceil_div(kMinScores, keys);
}

/// Whether a head of this size may use principal axes of Q and K.
OPENVC_HD constexpr bool wants_axes(const NumericOptions& options, std::int64_t queries,
                                    std::int64_t keys) {
  if (options.max_extra_steps == 0 || options.rotation == Choice::never) return false;
  return options.rotation == Choice::always || earns_axes(queries, keys);
}

/// Fills sums.mixed: energies outside of the axes are spread evenly over the other columns.
/// Infinity where there are no axes.
template <int kDim>
OPENVC_HD constexpr void sum_mixed(const AxisShares& axes, ScoreSums& sums) {
  for (int i = 0; i < kExtraStepChoices; ++i) {
    const int steps = extra_step_choice(i);
    const int columns = kDim - steps * kResidualChannelsPerStep;
    if (steps == 0 || steps > axes.steps || columns <= 0) {
      sums.mixed[i] = infinity();
      continue;
    }
    const float query = clamp_energy(sums.query_energy) * axes.query[i];
    const float key = clamp_energy(sums.key_energy) * axes.key[i];
    sums.mixed[i] = query / static_cast<float>(columns) * key;
  }
}

/// The number of k-steps, and their place, that minimise score variance + price * k-steps, ties to
/// fewer. A price spends the steps where they remove most; a plain limit on the variance needs
/// about a third more of them for the same error of captured heads (docs/numerics.md section 2).
OPENVC_HD constexpr void choose_extra_steps(ScorePlan& plan, const ScoreSums& sums, int limit,
                                            float price, Choice axes) {
  for (int i = 0; i < kExtraStepChoices; ++i) {
    const int steps = extra_step_choice(i);
    if (steps > limit) break;
    if (steps > 0 && axes == Choice::always && !is_finite(sums.mixed[i])) break;
    const bool on_axes =
        is_finite(sums.mixed[i]) &&
        (axes == Choice::always ||
         (axes == Choice::automatic && sums.mixed[i] < kAxesVarianceShare * sums.uncovered[i]));
    const float variance = kProductErrorVariance * (on_axes ? sums.mixed[i] : sums.uncovered[i]);
    const float cost = price * static_cast<float>(steps - plan.extra_steps);
    // A variance that overflowed is worth any number of steps.
    const bool better = !is_finite(variance) || variance + cost < plan.error_variance;
    if (steps > 0 && !better) continue;
    plan.extra_steps = steps;
    plan.error_variance = variance;
    plan.axes = on_axes ? 1 : 0;
  }
}

/// Chooses the number of residual columns and the rotation. Fills extra_steps, rotated, axes and
/// error_variance of the plan.
template <int kDim>
OPENVC_HD constexpr void decide_score_error(ScorePlan& plan, const ScoreSums& sums, Choice rotation,
                                            const NumericOptions& options) {
  choose_extra_steps(plan, sums, options.max_extra_steps,
                     options.score_error_target * options.score_error_target, rotation);
  if (rotation == Choice::never || plan.extra_steps > 0) return;
  // Without residual columns the rotation spreads the energy of both tensors over all channels.
  const float rotated_variance =
      kProductErrorVariance *
      (clamp_energy(sums.query_energy) / static_cast<float>(kDim) * clamp_energy(sums.key_energy));
  const bool rotated =
      rotation == Choice::always || rotated_variance < kRotationVarianceShare * plan.error_variance;
  if (!rotated) return;
  plan.rotated = 1;
  plan.error_variance = rotated_variance;
}

/// A tensor with a non-finite element gets a NaN multiplier.
template <int kDim = kHeadDim>
OPENVC_HD constexpr ScorePlan decide_scores(const Extent& query, const Extent& key,
                                            const ScoreSums& sums, std::int64_t keys,
                                            float softmax_scale, const NumericOptions& options) {
  ScorePlan plan;
  if (!query.finite()) plan.query_multiplier = quiet_nan();
  if (!key.finite()) plan.key_multiplier = quiet_nan();
  if (!query.finite() || !key.finite()) return plan;
  decide_score_error<kDim>(plan, sums, can_rotate(query, key) ? options.rotation : Choice::never,
                           options);

  const SplitGain split = split_gain(query_gain(softmax_scale));
  ScoreScale scale;
  if (query.magnitude_bits != 0 && key.magnitude_bits != 0) {
    int query_h = query_norm_exponent<kDim>(query, split);
    int key_h = sums.mean_squares > 0.0f ? centred_key_norm_exponent<kDim>(key, sums.mean_squares)
                                         : squared_norm_exponent<kDim>(key);
    if (plan.rotated != 0) {
      query_h += kRotatedQueryNormShift;
      key_h += kRotatedKeyNormShift;
    }
    scale = score_scale(query_h, key_h, split.exponent);
  }
  plan.wide = is_narrow(query, key, sums.mean_squares, split, keys) ? 0 : 1;
  plan.query_multiplier = split.mantissa * exp2_int(split.exponent - scale.query_exponent);
  plan.key_multiplier = exp2_int(-scale.key_exponent);
  plan.score_exponent = scale.score_exponent;
  plan.excess_exponent = scale.excess_exponent;
  plan.shift_unit = exp2_int(scale.query_exponent + scale.key_exponent - scale.excess_exponent);
  return plan;
}

/// The sums of one head by a single thread; destroys the energies.
template <int kDim>
OPENVC_HD constexpr ScoreSums sum_scores(float* query_energies, float* key_energies,
                                         const float* products, const int* ranks,
                                         const float* key_means) {
  ScoreSums sums;
  for (int i = 0; i < kExtraStepChoices; ++i) {
    float left[kDim] = {};
    for (int c = 0; c < kDim; ++c) {
      left[c] = has_residual_columns(ranks[c], extra_step_choice(i)) ? 0.0f : products[c];
    }
    sums.uncovered[i] = sum_balanced(left, kDim);
  }
  sums.query_energy = sum_balanced(query_energies, kDim);
  sums.key_energy = sum_balanced(key_energies, kDim);
  sums.mean_squares = row_sum_squares<kDim>([&](int c) { return key_means[c]; });
  return sums;
}

/// Prediction of a score's rounding under the plan of Q and K.
template <int kDim = kHeadDim>
OPENVC_HD inline Prediction predict_score_rounding(const ScorePlan& plan) {
  return {sqrtf(plan.error_variance), kExtraStepCost<kDim> * static_cast<float>(plan.extra_steps)};
}

/// Means of K that are removed; zero where a non-finite element leaves none.
template <int kDim>
OPENVC_HD constexpr void plan_key_means(const ScoreStatisticsOf<kDim>& statistics,
                                        std::int64_t keys, const NumericOptions& options,
                                        float* means) {
  const bool finite = statistics.query.finite() && statistics.key.finite();
  for (int c = 0; c < kDim; ++c) {
    means[c] =
        finite ? key_mean(statistics.key_sums[c], keys, statistics.key, options.smooth_keys) : 0.0f;
  }
}

/// The part of a head's plan that concerns Q and K.
template <int kDim>
OPENVC_HD inline void plan_scores(const ScoreStatisticsOf<kDim>& statistics, std::int64_t queries,
                                  std::int64_t keys, float softmax_scale,
                                  const NumericOptions& options, HeadPlanOf<kDim>& plan) {
  const Extent& query = statistics.query;
  const Extent& key = statistics.key;
  plan_key_means(statistics, keys, options, plan.key_means);
  ScoreSums sums;
  int ranks[kDim] = {};
  if (query.finite() && key.finite()) {
    const float gain = query_gain(softmax_scale);
    float query_energies[kDim] = {};
    float key_energies[kDim] = {};
    float products[kDim] = {};
    for (int c = 0; c < kDim; ++c) {
      query_energies[c] = query_energy(statistics.query_squares[c], queries, gain);
      key_energies[c] = key_energy(statistics.key_squares[c], keys, plan.key_means[c]);
      products[c] = query_energies[c] * key_energies[c];
    }
    for (int c = 0; c < kDim; ++c) ranks[c] = energy_rank<kDim>(products, c);
    sums = sum_scores<kDim>(query_energies, key_energies, products, ranks, plan.key_means);
    sum_mixed<kDim>(statistics.axes, sums);
  }
  plan.scores = decide_scores<kDim>(query, key, sums, keys, softmax_scale, options);
  plan.score_rounding = predict_score_rounding<kDim>(plan.scores);
  for (int c = 0; c < kDim; ++c) {
    if (has_residual_columns(ranks[c], plan.scores.extra_steps)) {
      const int column = plan.scores.axes != 0 ? ranks[c] : c;
      plan.residual_channels[ranks[c]] = static_cast<std::uint8_t>(column);
    }
  }
}

}  // namespace openvc::numerics
