// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/prepare/statistics.cuh"
#include "numerics/flush.hpp"
#include "numerics/plan.hpp"
#include "numerics/v_quantize.hpp"
#include "schedule/prepared_layout.hpp"

// Between the passes: one thread block per head finishes its statistics and plans it. The functions
// of numerics/plan.hpp are spread over the threads, one channel each; their bits are kept.
namespace openvc::cuda::prepare {

inline constexpr int kFinishThreads = kColumnStatistics * numerics::kHeadDim;
inline constexpr int kFinishWarps = kFinishThreads / kWarp;
inline constexpr int kChannelWarps = numerics::kHeadDim / kWarp;

/// Sums over the channels of a head that its plan needs.
enum PlanSum : int {
  kUncovered,  // products of energies left by the i-th choice of extra steps
  kQueryEnergy = kUncovered + 4,
  kKeyEnergy,
  kFlushProducts,
  kFlushSquares,
  kPlanSums
};
/// Choices of extra steps, in the order in which they are considered: 0, 1, 2, 4.
inline constexpr int kStepChoices = kQueryEnergy - kUncovered;
OPENVC_HD constexpr int step_choice(int i) { return i < 3 ? i : numerics::kMaxExtraSteps; }
static_assert([] {
  int choices = 0;
  for (int steps = 0; steps <= numerics::kMaxExtraSteps; ++steps) {
    if (!numerics::is_extra_step_choice(steps)) continue;
    if (choices == kStepChoices || step_choice(choices++) != steps) return false;
  }
  return choices == kStepChoices;
}());

struct FinishStorage {
  alignas(16) float key_means[numerics::kHeadDim];
  float totals[kColumnStatistics][numerics::kHeadDim];
  float products[numerics::kHeadDim];
  float plan_sums[kPlanSums][kChannelWarps];
  float flush_sums[numerics::kFlushSamples / kWarp];
  float flushes[numerics::kFlushSamples];
  std::uint32_t extents[kExtentStatistics];
  std::uint32_t spread_bits;
  float mean_sum_squares;

  [[nodiscard]] __device__ numerics::Extent query() const {
    return {extents[kQueryMagnitude], __uint_as_float(extents[kQueryRowSquares])};
  }
  [[nodiscard]] __device__ numerics::Extent key() const {
    return {extents[kKeyMagnitude], __uint_as_float(extents[kKeyRowSquares])};
  }
  /// Last steps of the balanced tree over the channels.
  [[nodiscard]] __device__ float plan_sum(int i) const {
    static_assert(kChannelWarps == 4);
    return (plan_sums[i][0] + plan_sums[i][1]) + (plan_sums[i][2] + plan_sums[i][3]);
  }
};

/// The upper levels of the canonical tree: thread (statistic, channel) does its own column.
__device__ __forceinline__ float finish_column(const Arguments& a, std::int64_t head, int statistic,
                                               int channel) {
  std::int64_t rows = a.workspace_layout.tiles_of(statistic);
  float* column = a.columns(statistic, head, 0) + channel;
  if (a.tiles_grouped) {
    rows = numerics::ceil_div(rows, numerics::kReductionGroup);
    column = a.groups(statistic, head, 0) + channel;
  }
  while (rows > 1) {
    const std::int64_t groups = numerics::ceil_div(rows, numerics::kReductionGroup);
    for (std::int64_t group = 0; group < groups; ++group) {
      const std::int64_t first = group * numerics::kReductionGroup;
      const std::int64_t left = rows - first;
      const int count =
          left < numerics::kReductionGroup ? static_cast<int>(left) : numerics::kReductionGroup;
      column[group * numerics::kHeadDim] =
          reduce_rows(statistic, column + first * numerics::kHeadDim, count);
    }
    rows = groups;
  }
  return column[0];
}

__device__ __forceinline__ void finish_extents(const Arguments& a, std::int64_t head,
                                               FinishStorage& shared) {
  for (int statistic = 0; statistic < kExtentStatistics; ++statistic) {
    const std::int64_t tiles = statistic <= kQueryRowSquares ? a.workspace_layout.query_tiles
                                                             : a.workspace_layout.key_tiles;
    const std::uint32_t* extents = a.extents(statistic, head);
    std::uint32_t largest = 0;
    for (std::int64_t tile = threadIdx.x; tile < tiles; tile += kFinishThreads) {
      largest = extents[tile] > largest ? extents[tile] : largest;
    }
    largest = __reduce_max_sync(kAllLanes, largest);
    if (threadIdx.x % kWarp == 0 && largest != 0) atomicMax(&shared.extents[statistic], largest);
  }
}

/// Writes plan, parameters and head rule of the scores, all but the tail correction, which it
/// leaves to the caller. `c` is the thread's channel. Every thread returns the plan's scalars.
struct ScoreDecision {
  int extra_steps = 0;
  bool rotated = false;
  float score_error_variance = 0.0f;
  numerics::ScoreScale scale;
  float query_multiplier = 1.0f;
  float key_multiplier = 1.0f;
};

/// numerics::choose_extra_steps and the rotation of numerics::plan_score_error, from sums that the
/// thread block has formed.
__device__ __forceinline__ void decide_steps(const Arguments& a, const FinishStorage& shared,
                                             ScoreDecision& plan) {
  const NumericOptions& options = a.numerics;
  const Choice rotation =
      numerics::can_rotate(shared.query(), shared.key()) ? options.rotation : Choice::never;
  const int limit = rotation == Choice::always ? 0 : options.max_extra_steps;
  const float price = options.score_error_target * options.score_error_target;
  for (int i = 0; i < kStepChoices; ++i) {
    const int steps = step_choice(i);
    if (steps > limit) break;
    const float variance = numerics::kProductErrorVariance * shared.plan_sum(kUncovered + i);
    const float cost = price * static_cast<float>(steps - plan.extra_steps);
    const bool better =
        !numerics::is_finite(variance) || variance + cost < plan.score_error_variance;
    if (steps > 0 && !better) continue;
    plan.extra_steps = steps;
    plan.score_error_variance = variance;
  }
  if (rotation == Choice::never || plan.extra_steps > 0) return;
  const float rotated_variance =
      numerics::kProductErrorVariance * (numerics::clamp_energy(shared.plan_sum(kQueryEnergy)) /
                                         static_cast<float>(numerics::kHeadDim) *
                                         numerics::clamp_energy(shared.plan_sum(kKeyEnergy)));
  plan.rotated = rotation == Choice::always ||
                 rotated_variance < numerics::kRotationVarianceShare * plan.score_error_variance;
  if (plan.rotated) plan.score_error_variance = rotated_variance;
}

/// The scalars of numerics::plan_scores.
__device__ __forceinline__ ScoreDecision decide_scores(const Arguments& a,
                                                       const FinishStorage& shared) {
  ScoreDecision plan;
  const numerics::Extent query = shared.query();
  const numerics::Extent key = shared.key();
  if (!query.finite()) plan.query_multiplier = numerics::quiet_nan();
  if (!key.finite()) plan.key_multiplier = numerics::quiet_nan();
  if (!query.finite() || !key.finite()) return plan;
  decide_steps(a, shared, plan);
  const numerics::SplitGain split = numerics::split_gain(numerics::query_gain(a.softmax_scale));
  if (query.magnitude_bits != 0 && key.magnitude_bits != 0) {
    int query_h = numerics::query_norm_exponent(query, split);
    int key_h = shared.mean_sum_squares > 0.0f
                    ? numerics::centred_key_norm_exponent(key, shared.mean_sum_squares)
                    : numerics::squared_norm_exponent(key);
    if (plan.rotated) {
      query_h += numerics::kRotatedQueryNormShift;
      key_h += numerics::kRotatedKeyNormShift;
    }
    plan.scale = numerics::score_scale(query_h, key_h, split.exponent);
  }
  plan.query_multiplier =
      split.mantissa * numerics::exp2_int(split.exponent - plan.scale.query_exponent);
  plan.key_multiplier = numerics::exp2_int(-plan.scale.key_exponent);
  return plan;
}

/// numerics::flush_model from sums that the thread block has formed.
__device__ __forceinline__ numerics::FlushModel make_flush_model(const Arguments& a,
                                                                 const FinishStorage& shared) {
  numerics::FlushModel model;
  const numerics::Extent query = shared.query();
  const numerics::Extent key = shared.key();
  if (query.magnitude_bits == 0 || key.magnitude_bits == 0) return model;
  if (!numerics::has_safe_squares(query) || !numerics::has_safe_squares(key)) return model;
  model.variance_per_square = a.softmax_scale * a.softmax_scale * shared.plan_sum(kFlushProducts) /
                              shared.plan_sum(kFlushSquares);
  model.log_keys = numerics::log_of_count(a.problem.keys);
  model.code_gain = a.softmax_scale;
  return model;
}

/// Predicted flush of the sampled queries, sixteen threads a sample.
template <ElementType kType, bool kAligned>
__device__ __forceinline__ void sample_flush(const Arguments& a, std::int64_t bh,
                                             FinishStorage& shared) {
  constexpr int kSamplesAtOnce = kFinishThreads / kRowThreads;
  const numerics::FlushModel model = make_flush_model(a, shared);
  const bool has_own_key = a.problem.queries == a.problem.keys;
  const int count = numerics::flush_sample_count(a.problem.queries);
  const int chunk = static_cast<int>(threadIdx.x) % kRowThreads;
  const std::byte* queries = a.q.head(bh, a.problem.heads);
  const std::byte* keys = a.k.head(bh, a.problem.heads);
  Chunk means;
  load_table(shared.key_means, chunk, means);
  for (int first = 0; first < count; first += kSamplesAtOnce) {
    const int sample = first + static_cast<int>(threadIdx.x) / kRowThreads;
    const std::int64_t token =
        numerics::flush_sample_query(sample < count ? sample : count - 1, a.problem.queries);
    Chunk query;
    to_floats<kType>(load_chunk<kType, kAligned>(queries + token * a.q.row_stride, chunk), query);
    float own_score = -numerics::infinity();
    if (has_own_key) {
      Chunk key;
      to_floats<kType>(load_chunk<kType, kAligned>(keys + token * a.k.row_stride, chunk), key);
#pragma unroll
      for (int c = 0; c < kChunkChannels; ++c) key[c] = key[c] - means[c];
      own_score = row_dot(query, key);
    }
    const float sum_squares = row_dot(query, query);
    if (chunk == 0 && sample < count) {
      shared.flushes[sample] = numerics::row_flush(model, sum_squares, own_score);
    }
  }
}

/// numerics::flush_rms. All threads; the caller synchronises before.
__device__ __forceinline__ float flush_rms(const Arguments& a, FinishStorage& shared) {
  if (threadIdx.x < numerics::kFlushSamples) {
    const float flush = shared.flushes[threadIdx.x];
    const float sum = sum_lanes<kWarp>(flush * flush);
    if (threadIdx.x % kWarp == 0) shared.flush_sums[threadIdx.x / kWarp] = sum;
  }
  __syncthreads();
  float sums[numerics::kFlushSamples / kWarp];
#pragma unroll
  for (int i = 0; i < numerics::kFlushSamples / kWarp; ++i) sums[i] = shared.flush_sums[i];
  const int count = numerics::flush_sample_count(a.problem.queries);
  return sqrtf(numerics::sum_balanced(sums, numerics::kFlushSamples / kWarp) /
               static_cast<float>(count));
}

/// Grid (heads of the round), kFinishThreads threads.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kFinishThreads)
    finish_statistics(const __grid_constant__ Arguments a) {
  __shared__ FinishStorage shared;
  const std::int64_t head = blockIdx.x;
  const std::int64_t bh = a.first_head + head;
  const int c = static_cast<int>(threadIdx.x) % numerics::kHeadDim;
  const int statistic = static_cast<int>(threadIdx.x) / numerics::kHeadDim;
  const bool is_channel = statistic == 0;
  if (threadIdx.x < kExtentStatistics) shared.extents[threadIdx.x] = 0;
  if (threadIdx.x < numerics::kFlushSamples) shared.flushes[threadIdx.x] = 0.0f;
  if (threadIdx.x == 0) shared.spread_bits = 0;
  __syncthreads();

  shared.totals[statistic][c] = finish_column(a, head, statistic, c);
  finish_extents(a, head, shared);
  __syncthreads();

  const numerics::Extent query = shared.query();
  const numerics::Extent key = shared.key();
  const bool finite = query.finite() && key.finite();
  const float gain = numerics::query_gain(a.softmax_scale);
  float query_energy = 0.0f;
  float key_energy = 0.0f;
  float flush_square = 0.0f;
  float product = 0.0f;
  numerics::ChannelRange range;
  float value_mean = 0.0f;
  float spread = 0.0f;
  if (is_channel) {
    const float mean = finite ? numerics::key_mean(shared.totals[kKeySums][c], a.problem.keys, key,
                                                   a.numerics.smooth_keys)
                              : 0.0f;
    shared.key_means[c] = mean;
    query_energy = numerics::query_energy(shared.totals[kQuerySquares][c], a.problem.queries, gain);
    flush_square = numerics::query_energy(shared.totals[kQuerySquares][c], a.problem.queries, 1.0f);
    key_energy = numerics::key_energy(shared.totals[kKeySquares][c], a.problem.keys, mean);
    product = query_energy * key_energy;
    shared.products[c] = product;
    range = {shared.totals[kValueSums][c], shared.totals[kValueMax][c],
             shared.totals[kValueMin][c]};
    value_mean = a.numerics.centre_values ? numerics::channel_mean(range, a.problem.keys) : 0.0f;
    spread = numerics::channel_spread(range, value_mean);
    // A spread is not negative, so its bits order like the number.
    const std::uint32_t bits = __float_as_uint(spread) & ~numerics::kFloatSignMask;
    const std::uint32_t largest = __reduce_max_sync(kAllLanes, bits);
    if (threadIdx.x % kWarp == 0) atomicMax(&shared.spread_bits, largest);
  }
  __syncthreads();

  int rank = 0;
  if (is_channel) {
    rank = numerics::energy_rank(shared.products, c);
    float terms[kPlanSums];
#pragma unroll
    for (int i = 0; i < kStepChoices; ++i) {
      const bool covered = rank < step_choice(i) * numerics::kResidualChannelsPerStep;
      terms[kUncovered + i] = covered ? 0.0f : product;
    }
    terms[kQueryEnergy] = query_energy;
    terms[kKeyEnergy] = key_energy;
    terms[kFlushProducts] = flush_square * key_energy;
    terms[kFlushSquares] = flush_square;
#pragma unroll
    for (int i = 0; i < kPlanSums; ++i) {
      const float sum = sum_lanes<kWarp>(terms[i]);
      if (threadIdx.x % kWarp == 0) shared.plan_sums[i][threadIdx.x / kWarp] = sum;
    }
  } else if (threadIdx.x / kWarp == kChannelWarps) {
    Chunk means;
    load_table(shared.key_means, static_cast<int>(threadIdx.x) % kRowThreads, means);
    const float sum_squares = row_dot(means, means);
    if (threadIdx.x % kWarp == 0) shared.mean_sum_squares = sum_squares;
  }
  __syncthreads();

  if (finite) sample_flush<kType, kAligned>(a, bh, shared);
  __syncthreads();
  const float flush = flush_rms(a, shared);
  const ScoreDecision scores = decide_scores(a, shared);
  HeadParameters& parameters = a.parameters(bh);
  if (is_channel) {
    if (rank < scores.extra_steps * numerics::kResidualChannelsPerStep) {
      parameters.residual_channels[rank] = static_cast<std::uint8_t>(c);
    }
    parameters.key_means[c] = shared.key_means[c];
    if (a.numerics.value_scale == ValueScale::per_head)
      spread = __uint_as_float(shared.spread_bits);
    const numerics::ChannelCode code = numerics::channel_code(
        value_mean, spread, shared.extents[kValueMagnitude] < numerics::kFloatInfinityBits);
    parameters.value_means[c] = code.mean;
    parameters.value_scales[c] = code.scale;
    parameters.value_multipliers[c] = code.multiplier;
    a.section<float>(a.block_layout.value_means)[bh * numerics::kHeadDim + c] = code.mean;
    a.section<float>(a.block_layout.value_scales)[bh * numerics::kHeadDim + c] = code.scale;
  }
  if (threadIdx.x == 0) {
    const Choice tail = a.numerics.tail_correction;
    const bool tail_correction =
        tail == Choice::automatic ? flush > numerics::kFlushLimit : tail == Choice::always;
    parameters.query_multiplier = scores.query_multiplier;
    parameters.key_multiplier = scores.key_multiplier;
    parameters.extra_steps = scores.extra_steps;
    parameters.rotated = scores.rotated ? 1 : 0;
    schedule::HeadRule rule;
    rule.score_exponent = static_cast<std::uint8_t>(scores.scale.score_exponent);
    rule.extra_steps = static_cast<std::uint8_t>(scores.extra_steps);
    rule.tail_correction = tail_correction ? 1 : 0;
    a.section<schedule::HeadRule>(a.block_layout.head_rules)[bh] = rule;
    HeadPlan plan;
    plan.extra_steps = scores.extra_steps;
    plan.rotated = scores.rotated;
    plan.tail_correction = tail_correction;
    plan.score_exponent = scores.scale.score_exponent;
    plan.predicted_score_error = sqrtf(scores.score_error_variance);
    plan.predicted_flush = flush;
    a.plan(bh) = plan;
  }
}

}  // namespace openvc::cuda::prepare
