// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/load.cuh"
#include "cuda/ptx/shared_memory.cuh"

// The canonical tree over the partial results of tiles.
namespace openvc::cuda::prepare {

/// A warp covers the 128 channels of a statistic, four per thread, and two of the sixteen lanes of
/// a canonical group.
inline constexpr int kLanePairs = numerics::kReductionLanes / 2;
static_assert(kLanePairs == kTileWarps && numerics::kHeadDim == 4 * kWarp);

/// Partial results of one statistic, joined up to eight per channel.
using LanePairs = float[kLanePairs][numerics::kHeadDim];

template <class Combine>
__device__ __forceinline__ float4 combine_quads(const float4& a, const float4& b,
                                                const Combine& combine) {
  return {combine(a.x, b.x), combine(a.y, b.y), combine(a.z, b.z), combine(a.w, b.w)};
}

/// Calls visit(combine, identity) with the operation that joins a statistic.
template <class Visit>
__device__ __forceinline__ void visit_statistic(int statistic, const Visit& visit) {
  if (statistic == kValueMax) {
    visit(Max{}, -numerics::infinity());
  } else if (statistic == kValueMin) {
    visit(Min{}, numerics::infinity());
  } else {
    visit(Add{}, 0.0f);
  }
}

/// Joins lanes 2 pair and 2 pair + 1 of a group of `count` <= kReductionGroup rows; one warp.
template <class Combine>
__device__ __forceinline__ void join_lane_pair(const float* rows, int count, int pair,
                                               const Combine& combine, float identity,
                                               LanePairs& joined) {
  constexpr int kRowQuads = numerics::kHeadDim / 4;
  constexpr int kRowsAtOnce = 4;  // of each lane: loads that are in flight together
  const int thread = static_cast<int>(threadIdx.x) % kWarp;
  const auto* quads = reinterpret_cast<const float4*>(rows) + thread;
  const float4 none = make_float4(identity, identity, identity, identity);
  float4 lanes[2] = {none, none};
  for (int first = 2 * pair; first < count; first += kRowsAtOnce * numerics::kReductionLanes) {
    uint4 bits[kRowsAtOnce][2];
    const auto row_of = [first](int i, int lane) {
      return first + i * numerics::kReductionLanes + lane;
    };
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
#pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        const int row = row_of(i, lane);
        bits[i][lane] = ptx::ld_global_v4(quads + row * kRowQuads, row < count);
      }
    }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
#pragma unroll
      for (int lane = 0; lane < 2; ++lane) {
        if (row_of(i, lane) >= count) continue;
        const uint4& x = bits[i][lane];
        lanes[lane] = combine_quads(lanes[lane],
                                    {__uint_as_float(x.x), __uint_as_float(x.y),
                                     __uint_as_float(x.z), __uint_as_float(x.w)},
                                    combine);
      }
    }
  }
  // The identity in place of a lane that does not exist changes no bit: no sum is -0.
  reinterpret_cast<float4*>(joined[pair])[thread] = combine_quads(lanes[0], lanes[1], combine);
}

/// One more level of the tree. Blocks per head: rows of the level x kColumnStatistics, kTileThreads
/// threads each.
static __global__ void __launch_bounds__(kTileThreads)
    reduce_tiles(const __grid_constant__ Arguments a, int level) {
  auto& shared = ptx::static_shared<LanePairs>();
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const TileTree& tree = a.workspace_layout.tree;
  const HeadBlock block(kColumnStatistics * TileTree::rows(tree.tiles, level));
  const auto statistic = static_cast<int>(block.index % kColumnStatistics);
  const std::int64_t row = block.index / kColumnStatistics;
  const std::int64_t first = row * numerics::kReductionGroup;
  const std::int64_t left =
      TileTree::rows(a.workspace_layout.tiles_of(statistic), level - 1) - first;
  if (left <= 0) return;
  const int count =
      left < numerics::kReductionGroup ? static_cast<int>(left) : numerics::kReductionGroup;
  visit_statistic(statistic, [&](const auto& combine, float identity) {
    join_lane_pair(a.columns(statistic, block.bh, tree.first_row(level - 1) + first), count,
                   static_cast<int>(threadIdx.x) / kWarp, combine, identity, shared);
    __syncthreads();
    if (threadIdx.x >= numerics::kHeadDim) return;
    const auto channel = static_cast<int>(threadIdx.x);
    a.columns(statistic, block.bh, tree.first_row(level) + row)[channel] =
        join_warps(shared, channel, combine);
  });
}

}  // namespace openvc::cuda::prepare
