// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/prepare_plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "cpu/load_row.hpp"
#include "cpu/row_kernels.hpp"
#include "numerics/flush.hpp"
#include "numerics/plan.hpp"
#include "numerics/v_quantize.hpp"

namespace openvc::cpu {
namespace {

using numerics::kHeadDim;

void plan_values(const HeadStatistics& statistics, std::int64_t keys, const NumericOptions& options,
                 HeadRecipe& recipe) {
  std::array<float, kHeadDim> spreads{};
  for (std::size_t c = 0; c < kHeadDim; ++c) {
    const numerics::ChannelRange& range = statistics.values[c];
    recipe.value_means[c] = options.smooth_values ? numerics::channel_mean(range, keys) : 0.0f;
    spreads[c] = numerics::channel_spread(range, recipe.value_means[c]);
  }
  if (options.value_scale == ValueScale::per_head) {
    spreads.fill(*std::max_element(spreads.begin(), spreads.end()));
  }
  for (std::size_t c = 0; c < kHeadDim; ++c) {
    const numerics::ChannelCode code =
        numerics::channel_code(recipe.value_means[c], spreads[c], statistics.values_finite);
    recipe.value_means[c] = code.mean;
    recipe.value_scales[c] = code.scale;
    recipe.value_multipliers[c] = code.multiplier;
  }
}

float predict_flush(const schedule::PrepareRequest& request, std::int64_t head,
                    const numerics::ScoreStatistics& statistics,
                    const numerics::ScorePlan& scores) {
  const schedule::Problem& problem = request.problem;
  if (!statistics.query.finite() || !statistics.key.finite()) return 0.0f;
  const numerics::FlushModel model = numerics::flush_model(
      statistics, scores.key_means, problem.queries, problem.keys, request.softmax_scale);
  // Equal lengths are taken for self-attention.
  const bool has_own_key = problem.queries == problem.keys;
  const std::int64_t b = head / problem.heads;
  const std::int64_t h = head % problem.heads;
  float flushes[numerics::kFlushSamples] = {};
  const int count = numerics::flush_sample_count(problem.queries);
  for (int sample = 0; sample < count; ++sample) {
    const std::int64_t token = numerics::flush_sample_query(sample, problem.queries);
    float query[kHeadDim];
    load_row(request.q, b, token, h, query);
    float own_score = -numerics::infinity();
    if (has_own_key) {
      float key[kHeadDim];
      load_row(request.k, b, token, h, key);
      subtract_from_rows(key, 1, scores.key_means);
      own_score = row_dot(query, key);
    }
    flushes[sample] = numerics::row_flush(model, row_dot(query, query), own_score);
  }
  return numerics::flush_rms(flushes, count);
}

}  // namespace

HeadRecipe plan_head(const schedule::PrepareRequest& request, std::int64_t head,
                     const HeadStatistics& statistics, HeadPlan& plan) {
  HeadRecipe recipe;
  numerics::ScorePlan& scores = recipe.scores;
  scores = numerics::plan_scores(statistics.scores, request.problem.queries, request.problem.keys,
                                 request.softmax_scale, request.numerics);
  plan_values(statistics, request.problem.keys, request.numerics, recipe);

  plan.predicted_flush = predict_flush(request, head, statistics.scores, scores);
  recipe.tail_correction =
      numerics::wants_tail_correction(request.numerics.tail_correction, plan.predicted_flush);
  plan.extra_steps = scores.extra_steps;
  plan.rotated = scores.rotated;
  plan.tail_correction = recipe.tail_correction;
  plan.score_exponent = scores.score_exponent;
  plan.predicted_score_error = std::sqrt(scores.score_error_variance);
  return recipe;
}

}  // namespace openvc::cpu
