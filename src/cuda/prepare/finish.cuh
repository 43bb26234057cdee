// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/prepare/tile_tree.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/load.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "numerics/plan_scores.hpp"
#include "numerics/v_quantize.hpp"
#include "schedule/prepare_request.hpp"
#include "schedule/prepared_layout.hpp"

// Between the passes: two thread blocks per head, one for Q and K and one for V, finish the
// statistics and plan the head. Nothing else runs meanwhile, so every step is spread over as many
// threads as it has independent parts.
namespace openvc::cuda::prepare {

static_assert(kQuerySquares == 0 && kKeySums == 1 && kKeySquares == 2);
static_assert(kValueSums == kPartStatistics && kValueMax == 4 && kValueMin == 5);

/// Warps that join the columns of a part.
inline constexpr int kColumnWarps = kPartStatistics * kLanePairs;
/// Next to them, a warp per extent.
inline constexpr int kExtentWarps = kValueMagnitude;
inline constexpr int kValueExtentWarps = kExtentStatistics - kValueMagnitude;
inline constexpr int kFinishThreads = 1024;
static_assert(kFinishThreads / kWarp >= kColumnWarps + kExtentWarps);

inline constexpr int kChannelWarps = numerics::kHeadDim / kWarp;
/// The ranks of the channels are counted in slices, each by as many threads as there are channels.
inline constexpr int kRankSlices = kFinishThreads / numerics::kHeadDim;
inline constexpr int kSliceChannels = numerics::kHeadDim / kRankSlices;
static_assert(kRankSlices * kSliceChannels == numerics::kHeadDim);
/// A warp that has little else to do adds the squares of the means.
inline constexpr int kMeanWarp = kFinishThreads / kWarp - 1;

/// Sums over the channels of a head that its plan needs.
enum PlanSum : int {
  kUncovered,
  kQueryEnergy = kUncovered + numerics::kExtraStepChoices,
  kKeyEnergy,
  kPlanSums
};

struct FinishStorage {
  alignas(16) LanePairs columns[kPartStatistics];
  alignas(16) float means[numerics::kHeadDim];  // of K, or of V
  alignas(16) float products[numerics::kHeadDim];
  std::int32_t before[kRankSlices][numerics::kHeadDim];
  float plan_sums[kPlanSums][kChannelWarps];
  float mean_squares;
  std::uint32_t extents[kExtentStatistics];
  std::uint32_t spreads[kChannelWarps];

  [[nodiscard]] __device__ numerics::Extent query() const {
    return {extents[kQueryMagnitude], __uint_as_float(extents[kQueryRowSquares])};
  }
  [[nodiscard]] __device__ numerics::Extent key() const {
    return {extents[kKeyMagnitude], __uint_as_float(extents[kKeyRowSquares])};
  }
  [[nodiscard]] __device__ numerics::Extent value() const {
    return {extents[kValueMagnitude], __uint_as_float(extents[kValueRowSquares])};
  }
  /// Last steps of the balanced tree over the channels.
  [[nodiscard]] __device__ float plan_sum(int i) const {
    static_assert(kChannelWarps == 4);
    return (plan_sums[i][0] + plan_sums[i][1]) + (plan_sums[i][2] + plan_sums[i][3]);
  }
};

/// What a warp joins first: two lanes of a statistic of channels, or one extent.
struct JoinTask {
  int statistic;  // of channels; an extent if `is_extent`
  bool is_extent;
  int count;          // of rows, or of tiles
  const void* first;  // row, or value of the first tile

  /// Finds the addresses, which are long computations, while the kernel before ends.
  __device__ __forceinline__ JoinTask(const Arguments& a, std::int64_t bh, int part, int warp) {
    const WorkspaceLayout& layout = a.workspace_layout;
    is_extent = warp >= kColumnWarps;
    if (is_extent) {
      const int extent = warp - kColumnWarps;
      const int last = part == kScores ? kExtentWarps - 1 : kValueExtentWarps - 1;
      statistic = (part == kScores ? 0 : static_cast<int>(kValueMagnitude)) +
                  (extent < last ? extent : last);
      count =
          static_cast<int>(statistic <= kQueryRowSquares ? layout.query_tiles : layout.key_tiles);
      first = a.extents(statistic, bh);
    } else {
      statistic = part * kPartStatistics + warp / kLanePairs;
      count = statistic == kQuerySquares ? layout.last_query_rows : layout.last_key_rows;
      first = a.columns(statistic, bh, layout.tree.last_level);
    }
    ptx::pin_address(first);
  }
};

/// The maximum of one extent over all tiles; one warp.
__device__ __forceinline__ void reduce_extent(const JoinTask& task, FinishStorage& shared) {
  const auto* extents = static_cast<const std::uint32_t*>(task.first);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  std::uint32_t largest = 0;
#pragma unroll 4
  for (int tile = lane; tile < task.count; tile += kWarp) {
    largest = extents[tile] > largest ? extents[tile] : largest;
  }
  largest = __reduce_max_sync(kAllLanes, largest);
  if (lane == 0) shared.extents[task.statistic] = largest;
}

/// Tokens of a head that statistics are of. Those of no tokens are like those of one that is zero:
/// nothing reads what they decide, but it has to be finite.
struct TokenCounts {
  std::int64_t queries;
  std::int64_t keys;

  __device__ __forceinline__ TokenCounts(const Arguments& a, std::int64_t bh) {
    const schedule::Problem problem = a.problem_of(bh);
    queries = problem.queries > 0 ? problem.queries : 1;
    keys = problem.keys > 0 ? problem.keys : 1;
  }
};

/// Energies of one channel.
struct ChannelEnergies {
  float query = 0.0f;
  float key = 0.0f;
};

__device__ __forceinline__ ChannelEnergies channel_energies(const Arguments& a, std::int64_t bh,
                                                            int c, FinishStorage& shared) {
  const TokenCounts counts(a, bh);
  const numerics::Extent key = shared.key();
  const bool finite = shared.query().finite() && key.finite();
  const float query_squares = join_warps(shared.columns[kQuerySquares], c, Add{});
  const float key_sum = join_warps(shared.columns[kKeySums], c, Add{});
  const float key_squares = join_warps(shared.columns[kKeySquares], c, Add{});
  const float mean =
      finite ? numerics::key_mean(key_sum, counts.keys, key, a.numerics.smooth_keys) : 0.0f;
  ChannelEnergies energies;
  energies.query =
      numerics::query_energy(query_squares, counts.queries, numerics::query_gain(a.softmax_scale));
  energies.key = numerics::key_energy(key_squares, counts.keys, mean);
  shared.means[c] = mean;
  shared.products[c] = energies.query * energies.key;
  return energies;
}

/// A slice's share of numerics::energy_rank.
__device__ __forceinline__ int count_before_in_slice(const FinishStorage& shared, int slice,
                                                     int c) {
  constexpr int kQuads = kSliceChannels / 4;
  float energies[kSliceChannels];
  const auto* quads = reinterpret_cast<const float4*>(shared.products) + slice * kQuads;
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const float4 quad = quads[i];
    energies[4 * i] = quad.x;
    energies[4 * i + 1] = quad.y;
    energies[4 * i + 2] = quad.z;
    energies[4 * i + 3] = quad.w;
  }
  return numerics::count_before(energies, slice * kSliceChannels, kSliceChannels, c,
                                shared.products[c]);
}

/// One warp's part of the sums over the channels.
__device__ __forceinline__ void sum_channels(const ChannelEnergies& energies, int rank, int c,
                                             FinishStorage& shared) {
  float terms[kPlanSums];
#pragma unroll
  for (int i = 0; i < numerics::kExtraStepChoices; ++i) {
    const bool covered = numerics::has_residual_columns(rank, numerics::extra_step_choice(i));
    terms[kUncovered + i] = covered ? 0.0f : shared.products[c];
  }
  terms[kQueryEnergy] = energies.query;
  terms[kKeyEnergy] = energies.key;
#pragma unroll
  for (int i = 0; i < kPlanSums; ++i) {
    const float sum = sum_lanes<kWarp>(terms[i]);
    if (c % kWarp == 0) shared.plan_sums[i][c / kWarp] = sum;
  }
}

__device__ __forceinline__ numerics::ScorePlan decide_scores(const Arguments& a, std::int64_t bh,
                                                             const FinishStorage& shared) {
  numerics::ScoreSums sums;
#pragma unroll
  for (int i = 0; i < numerics::kExtraStepChoices; ++i) {
    sums.uncovered[i] = shared.plan_sum(kUncovered + i);
  }
  sums.query_energy = shared.plan_sum(kQueryEnergy);
  sums.key_energy = shared.plan_sum(kKeyEnergy);
  sums.mean_squares = shared.mean_squares;
  // The layout is made for all keys; the sequence may have too few for axes.
  const TokenCounts counts(a, bh);
  if (a.workspace_layout.with_axes &&
      numerics::wants_axes(a.numerics, counts.queries, counts.keys)) {
    numerics::sum_mixed<numerics::kHeadDim>(a.axis_shares(bh), sums);
  } else {
    numerics::sum_mixed<numerics::kHeadDim>({}, sums);
  }
  return numerics::decide_scores(shared.query(), shared.key(), sums, counts.keys, a.softmax_scale,
                                 a.numerics);
}

/// What concerns the head as a whole.
__device__ __forceinline__ void write_decision(const Arguments& a, std::int64_t bh,
                                               const numerics::ScorePlan& scores) {
  a.head_rule(bh) = numerics::head_rule(scores.score_exponent, scores.wide != 0, scores.extra_steps,
                                        scores.excess_exponent);
  numerics::HeadPlan& plan = a.plan(bh);
  plan.scores = scores;
  plan.score_rounding = numerics::predict_score_rounding(scores);
}

/// Squared norm of the means; one warp does the work.
__device__ __forceinline__ void square_means(FinishStorage& shared) {
  if (threadIdx.x / kWarp != kMeanWarp) return;
  Chunk means;
  load_table(shared.means, static_cast<int>(threadIdx.x) % kRowThreads, means);
  const float squares = row_dot(means, means);
  if (threadIdx.x % kWarp == 0) shared.mean_squares = squares;
}

/// Plan of Q and K. All threads of the block; the columns and extents are in shared memory.
__device__ __forceinline__ void finish_scores(const Arguments& a, std::int64_t bh,
                                              FinishStorage& shared) {
  const int c = static_cast<int>(threadIdx.x) % numerics::kHeadDim;
  const int slice = static_cast<int>(threadIdx.x) / numerics::kHeadDim;
  const bool is_channel = slice == 0;
  numerics::HeadPlan& plan = a.plan(bh);
  ChannelEnergies energies;
  if (is_channel) energies = channel_energies(a, bh, c, shared);
  __syncthreads();
  shared.before[slice][c] = count_before_in_slice(shared, slice, c);
  square_means(shared);
  __syncthreads();
  int rank = 0;
  if (is_channel) {
#pragma unroll
    for (int i = 0; i < kRankSlices; ++i) rank += shared.before[i][c];
    sum_channels(energies, rank, c, shared);
  }
  __syncthreads();
  if (is_channel) {
    const numerics::ScorePlan scores = decide_scores(a, bh, shared);
    if (rank < numerics::kMaxResidualChannels) {
      plan.residual_channels[rank] = numerics::has_residual_columns(rank, scores.extra_steps)
                                         ? static_cast<std::uint8_t>(scores.axes != 0 ? rank : c)
                                         : std::uint8_t{0};
    }
    plan.key_means[c] = shared.means[c];
    if (threadIdx.x == 0) write_decision(a, bh, scores);
  }
}

/// The code of a channel of V, which all threads of the block help to find.
__device__ __forceinline__ numerics::ChannelCode channel_code(const Arguments& a, std::int64_t keys,
                                                              const numerics::ChannelRange& range,
                                                              bool is_channel,
                                                              FinishStorage& shared) {
  const auto c = static_cast<int>(threadIdx.x);
  float mean = 0.0f;
  float spread = 0.0f;
  if (is_channel) {
    mean = a.numerics.smooth_values ? numerics::channel_mean(range, keys) : 0.0f;
    spread = numerics::channel_spread(range, mean);
    // A spread is not negative, so its bits order like the number.
    const std::uint32_t bits = __float_as_uint(spread) & ~numerics::kFloatSignMask;
    const std::uint32_t largest = __reduce_max_sync(kAllLanes, bits);
    if (c % kWarp == 0) shared.spreads[c / kWarp] = largest;
  }
  __syncthreads();
  if (a.numerics.value_scale == ValueScale::per_head) {
    std::uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kChannelWarps; ++i) {
      largest = shared.spreads[i] > largest ? shared.spreads[i] : largest;
    }
    spread = __uint_as_float(largest);
  }
  return numerics::channel_code(mean, spread, shared.value().finite());
}

/// Scales and means of V. All threads of the block.
__device__ __forceinline__ void finish_values(const Arguments& a, std::int64_t bh,
                                              FinishStorage& shared) {
  const auto c = static_cast<int>(threadIdx.x);
  const bool is_channel = c < numerics::kHeadDim;
  const std::int64_t keys = TokenCounts(a, bh).keys;
  const schedule::Problem problem = a.problem_of(bh);
  numerics::ChannelRange range;
  if (is_channel) {
    range = {join_warps(shared.columns[kValueSums - kPartStatistics], c, Add{}),
             join_warps(shared.columns[kValueMax - kPartStatistics], c, Max{}),
             join_warps(shared.columns[kValueMin - kPartStatistics], c, Min{})};
    if (problem.keys == 0) range = {0.0f, 0.0f, 0.0f};  // else infinite, and so the scale
  }
  numerics::ChannelCode code = channel_code(a, keys, range, is_channel, shared);
  bool on_axes = false;
  float inside = 0.0f;
  const numerics::Extent value = shared.value();
  if (a.workspace_layout.with_value_axes && schedule::wants_value_axes(a.numerics, problem) &&
      value.finite() && value.magnitude_bits != 0) {
    const float mean = numerics::axes_mean(range.sum, keys, a.numerics.smooth_values);
    if (is_channel) shared.means[c] = mean;
    __syncthreads();
    square_means(shared);
    __syncthreads();
    const int norm_exponent = numerics::centred_value_norm_exponent(value, shared.mean_squares);
    const numerics::ValueAxes axes = a.value_axes(bh);
    on_axes = numerics::values_use_axes(axes, value, norm_exponent, a.numerics);
    if (on_axes) {
      code = numerics::axis_code(mean, norm_exponent);
      inside = axes.inside;
    }
  }
  if (!is_channel) return;
  numerics::HeadPlan& plan = a.plan(bh);
  plan.value_means[c] = code.mean;
  plan.value_scales[c] = code.scale;
  plan.value_multipliers[c] = code.multiplier;
  a.value_means(bh)[c] = code.mean;
  a.value_scales(bh)[c] = code.scale;
  if (c != 0) return;
  plan.value_rounding = numerics::predict_value_rounding(inside);
  plan.values_on_axes = on_axes ? 1 : 0;
  for (std::int32_t& word : plan.reserved) word = 0;
}

/// Blocks per head: kHeadParts, kFinishThreads threads each.
static __global__ void __launch_bounds__(kFinishThreads, 1)
    finish_statistics(const __grid_constant__ Arguments a) {
  auto& shared = ptx::static_shared<FinishStorage>();
  ptx::griddepcontrol_launch_dependents();
  const HeadBlock block(kHeadParts);
  const auto part = static_cast<int>(block.index);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const JoinTask task(a, block.bh, part, warp);
  ptx::griddepcontrol_wait();
  if (!task.is_extent) {
    visit_statistic(task.statistic, [&](const auto& combine, float identity) {
      join_lane_pair(static_cast<const float*>(task.first), task.count, warp % kLanePairs, combine,
                     identity, shared.columns[warp / kLanePairs]);
    });
  } else if (warp < kColumnWarps + (part == kScores ? kExtentWarps : kValueExtentWarps)) {
    reduce_extent(task, shared);
  }
  __syncthreads();
  if (part == kScores) {
    finish_scores(a, block.bh, shared);
  } else {
    finish_values(a, block.bh, shared);
  }
}

}  // namespace openvc::cuda::prepare
