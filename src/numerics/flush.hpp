// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/canonical_sum.hpp"
#include "numerics/contract.hpp"
#include "numerics/exp_cast.hpp"
#include "numerics/plan_scores.hpp"
#include "numerics/score_scale.hpp"
#include "numerics/statistics.hpp"
#include "openvc/options.hpp"

// Predicts how much softmax mass plain ExpCast flushes to zero, which decides on the tail
// correction of a head. Measuring it takes many full rows of scores; this model takes the moments
// of the statistics pass and one dot product per sampled query, and selects the same heads of
// captured attention. docs/numerics.md section 3.
//
// Model of a row: scores are normal about zero with a variance proportional to |q|^2; the largest
// is the query's own key (in self-attention) or the expected maximum of that many normal numbers.
namespace openvc::numerics {

/// Queries that are looked at, evenly spaced.
inline constexpr int kFlushSamples = kContract.flush_samples;

/// Flushed mass, RMS over queries, beyond which the tail correction is worth its time.
inline constexpr float kFlushLimit = kContract.flush_limit;

OPENVC_HD constexpr int flush_sample_count(std::int64_t queries) {
  return queries < kFlushSamples ? static_cast<int>(queries) : kFlushSamples;
}

OPENVC_HD constexpr std::int64_t flush_sample_query(int sample, std::int64_t queries) {
  return sample * queries / flush_sample_count(queries);
}

/// Natural logarithm of n >= 1, within 2e-5.
OPENVC_HD inline float log_of_count(std::int64_t n) {
  const auto x = static_cast<float>(n);
  const int exponent = floor_log2(x);
  const float mantissa = x * exp2_int(-exponent);  // [1, 2)
  // ln(mantissa) = 2 artanh(t), t <= 1/3.
  const float t = (mantissa - 1.0f) / (mantissa + 1.0f);
  const float square = t * t;
  float series = __builtin_fmaf(square, 1.0f / 7.0f, 1.0f / 5.0f);
  series = __builtin_fmaf(series, square, 1.0f / 3.0f);
  series = __builtin_fmaf(series, square, 1.0f);
  constexpr float kLn2 = 0.693147180559945309f;
  return __builtin_fmaf(2.0f * t, series, static_cast<float>(exponent) * kLn2);
}

/// e^x; infinity and zero where it leaves binary32.
OPENVC_HD constexpr float exp_nats(float x) {
  const float code_units = x * kCodeUnitsPerNat;
  return x <= 0.0f ? exp2_code_units(code_units) : 1.0f / exp2_code_units(-code_units);
}

/// Cumulative distribution of the standard normal, within 2e-4 (logistic approximation).
OPENVC_HD constexpr float normal_cdf(float z) {
  constexpr float kLinear = kContract.logistic_linear;
  constexpr float kCubic = kContract.logistic_cubic;
  return 1.0f / (1.0f + exp_nats(-z * (kLinear + kCubic * z * z)));
}

/// What the rows of one head have in common.
struct FlushModel {
  float variance_per_square = 0.0f;  ///< of a row's scores in nats, per unit of |q|^2
  float log_keys = 0.0f;
  float code_gain = 0.0f;  ///< q.k times this counts nats
};

/// Sums over the channels of one head, in canonical order.
struct FlushSums {
  float products = 0.0f;  ///< of mean squares of Q with energies of K
  float squares = 0.0f;   ///< mean squares of Q
};

/// A model that predicts nothing for heads whose squares leave binary32: they are one-hot.
OPENVC_HD inline FlushModel flush_model(const Extent& query, const Extent& key,
                                        const FlushSums& sums, std::int64_t keys,
                                        float softmax_scale) {
  FlushModel model;
  if (query.magnitude_bits == 0 || key.magnitude_bits == 0) return model;
  if (!has_safe_squares(query) || !has_safe_squares(key)) return model;
  model.variance_per_square = softmax_scale * softmax_scale * sums.products / sums.squares;
  model.log_keys = log_of_count(keys);
  model.code_gain = softmax_scale;
  return model;
}

/// The same by a single thread.
template <int kDim>
OPENVC_HD inline FlushModel flush_model(const ScoreStatisticsOf<kDim>& statistics,
                                        const float* key_means, std::int64_t queries,
                                        std::int64_t keys, float softmax_scale) {
  float products[kDim] = {};
  float squares[kDim] = {};
  for (int c = 0; c < kDim; ++c) {
    squares[c] = query_energy(statistics.query_squares[c], queries, 1.0f);
    products[c] = squares[c] * key_energy(statistics.key_squares[c], keys, key_means[c]);
  }
  const FlushSums sums{sum_balanced(products, kDim), sum_balanced(squares, kDim)};
  return flush_model(statistics.query, statistics.key, sums, keys, softmax_scale);
}

/// Share of a row's mass that falls below half a code. `own_score` = q.(k - mean) of the query's
/// own key, or -infinity where queries and keys are different tokens.
OPENVC_HD inline float row_flush(const FlushModel& model, float query_sum_squares,
                                 float own_score) {
  constexpr float kMinDeviation = 1e-6f;
  constexpr float kRange = (static_cast<float>(kPeakCode) - 0.5f) / kCodeUnitsPerNat;
  const float variance = query_sum_squares * model.variance_per_square;
  const float root = sqrtf(variance);
  const float deviation = root > kMinDeviation ? root : kMinDeviation;
  const float expected_top = deviation * sqrtf(2.0f * model.log_keys);
  const float own = own_score * model.code_gain;
  const float top = own > expected_top ? own : expected_top;
  // Mass of all keys but the top one, relative to the whole row, and the part of it that is
  // flushed: weighting a normal density by e^x moves its mean by the variance.
  const float bulk = 1.0f / (1.0f + exp_nats(top - model.log_keys - 0.5f * variance));
  return bulk * normal_cdf((top - kRange) / deviation - deviation);
}

/// RMS over `count` samples. `square_sum`: of kFlushSamples flushes, zero beyond `count`.
OPENVC_HD inline float flush_rms(float square_sum, int count) {
  return sqrtf(square_sum / static_cast<float>(count));
}

/// The same by a single thread; destroys `flushes`.
OPENVC_HD inline float flush_rms(float* flushes, int count) {
  for (int i = 0; i < kFlushSamples; ++i) flushes[i] = flushes[i] * flushes[i];
  return flush_rms(sum_balanced(flushes, kFlushSamples), count);
}

OPENVC_HD constexpr bool wants_tail_correction(Choice choice, float predicted_flush) {
  if (choice == Choice::automatic) return predicted_flush > kFlushLimit;
  return choice == Choice::always;
}

/// Prediction of the mass that ExpCast flushes, and what its correction costs.
OPENVC_HD constexpr Prediction predict_probability_flush(float flush, bool tail_correction) {
  return {flush, tail_correction ? kTailCorrectionCost : 0.0f};
}

/// The part of a head's plan that concerns probabilities; the means of K must be planned.
template <int kDim>
OPENVC_HD inline void plan_probabilities(const HeadStatisticsOf<kDim>& statistics,
                                         std::int64_t queries, std::int64_t keys,
                                         float softmax_scale, const NumericOptions& options,
                                         HeadPlanOf<kDim>& plan) {
  float rms = 0.0f;
  if (statistics.scores.query.finite() && statistics.scores.key.finite()) {
    const FlushModel model =
        flush_model(statistics.scores, plan.key_means, queries, keys, softmax_scale);
    const FlushSamples& samples = statistics.flush;
    float flushes[kFlushSamples] = {};
    for (int i = 0; i < samples.count; ++i) {
      flushes[i] = row_flush(model, samples.query_squares[i], samples.own_scores[i]);
    }
    rms = flush_rms(flushes, samples.count);
  }
  const bool corrected = wants_tail_correction(options.tail_correction, rms);
  plan.tail_correction = corrected ? 1 : 0;
  plan.probability_flush = predict_probability_flush(rms, corrected);
}

}  // namespace openvc::numerics
