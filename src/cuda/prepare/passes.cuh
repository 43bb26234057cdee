// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/axes_tiles.cuh"
#include "cuda/prepare/quantize.cuh"
#include "cuda/prepare/quantize_values.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/shared_memory.cuh"

// The passes over the inputs, a kernel each.
namespace openvc::cuda::prepare {

/// Thread blocks per SM that the compiler may count on. Without a number it saves
/// registers for more of them, and issues most loads of a tile only when others have arrived.
template <ElementType kType>
inline constexpr int kBlocksPerSm = kType == ElementType::float32 ? 2 : 3;

/// Blocks per head: tiles of Q, K, V.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm<kType>)
    collect_statistics(const __grid_constant__ Arguments a) {
  auto& shared = ptx::static_shared<StatisticsStorage>();
  ptx::griddepcontrol_launch_dependents();
  const std::int64_t queries = a.workspace_layout.query_tiles;
  const std::int64_t keys = a.workspace_layout.key_tiles;
  const HeadBlock block(queries + 2 * keys);
  if (block.index < queries) {
    collect_score_statistics<kType, kAligned, true>(a, block.bh, block.index, shared);
  } else if (block.index < queries + keys) {
    collect_score_statistics<kType, kAligned, false>(a, block.bh, block.index - queries, shared);
  } else {
    collect_value_statistics<kType, kAligned>(a, block.bh, block.index - queries - keys, shared);
  }
  // The last block ends behind the axes, which are found meanwhile, so that whoever waits for this
  // kernel waits for them. All others make room for those that have not begun.
  if (a.workspace_layout.with_any_axes() && blockIdx.x + 1 == gridDim.x) {
    ptx::griddepcontrol_wait();
  }
}

/// Of the second pass, padding included.
[[nodiscard]] OPENVC_HD inline std::int64_t tiles_per_head(const Arguments& a) {
  return a.block_layout.query_rows / kTileRows + 2 * a.workspace_layout.key_tiles;
}

/// Blocks per SM of a kernel that keeps its blocks: it holds a tile and where it is among others.
inline constexpr int kOffAxesBlocksPerSm = 2;

union QuantizeStorage {
  alignas(16) ColumnTile columns;
  alignas(16) ValueTile values;
};

/// One tile of a head: those of Q, K, V in a row, padding included.
template <ElementType kType, bool kAligned, class Wait>
__device__ __forceinline__ void quantize_tile(const Arguments& a, std::int64_t bh,
                                              std::int64_t tile, const Wait& wait,
                                              QuantizeStorage& shared) {
  const std::int64_t queries = a.block_layout.query_rows / kTileRows;
  const std::int64_t keys = a.workspace_layout.key_tiles;
  if (tile < queries) {
    return quantize_scores<kType, kAligned, true>(a, bh, tile, wait, shared.columns);
  }
  tile -= queries;
  if (tile < keys) {
    return quantize_scores<kType, kAligned, false>(a, bh, tile, wait, shared.columns);
  }
  quantize_values<kType, kAligned>(a, bh, tile - keys, wait, shared.values);
}

/// A block per tile of all heads, in the order of the first pass but from its end, so that what
/// that pass has read last is still in the L2.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm<kType>)
    quantize_inputs(const __grid_constant__ Arguments a) {
  auto& shared = ptx::static_shared<QuantizeStorage>();
  ptx::griddepcontrol_launch_dependents();
  const HeadBlock place(tiles_per_head(a), gridDim.x - 1 - blockIdx.x);
  const auto wait = [] { ptx::griddepcontrol_wait(); };
  quantize_tile<kType, kAligned>(a, place.bh, place.index, wait, shared);
}

/// The same by any number of blocks: for calls in which quantize_on_axes() may have most tiles.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kTileThreads, kOffAxesBlocksPerSm)
    quantize_off_axes(const __grid_constant__ Arguments a) {
  auto& shared = ptx::static_shared<QuantizeStorage>();
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const std::int64_t each = tiles_per_head(a);
  const auto tiles = static_cast<unsigned>(each * a.problem.batch_heads());
  for (unsigned number = blockIdx.x; number < tiles; number += gridDim.x) {
    const HeadBlock place(each, tiles - 1 - number);
    const bool is_query = place.index < a.block_layout.query_rows / kTileRows;
    const bool is_value = place.index >= each - a.workspace_layout.key_tiles;
    const bool has_shifts = is_query && a.with_log_sum_exp;
    if (!has_shifts && is_on_axes(a, place.bh, is_value ? kValues : kScores)) continue;
    quantize_tile<kType, kAligned>(
        a, place.bh, place.index, [] {}, shared);
    __syncthreads();  // before the next tile takes the memory
  }
}

}  // namespace openvc::cuda::prepare
