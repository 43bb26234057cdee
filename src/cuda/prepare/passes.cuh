// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/quantize.cuh"
#include "cuda/prepare/quantize_values.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/ptx/grid_dependency.cuh"

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
  __shared__ StatisticsStorage shared;
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

union QuantizeStorage {
  alignas(16) ColumnTile columns;
  alignas(16) ValueTile values;
};

/// Blocks per head: tiles of Q, K, V, padding included; in the order of the first pass but
/// from its end, so that what that pass has read last is still in the L2.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kTileThreads, kBlocksPerSm<kType>)
    quantize_inputs(const __grid_constant__ Arguments a) {
  __shared__ QuantizeStorage shared;
  ptx::griddepcontrol_launch_dependents();
  const std::int64_t queries = a.block_layout.query_rows / kTileRows;
  const std::int64_t keys = a.workspace_layout.key_tiles;
  const HeadBlock block(queries + 2 * keys, gridDim.x - 1 - blockIdx.x);
  const std::int64_t bh = block.bh;
  std::int64_t tile = block.index;
  const auto wait = [] { ptx::griddepcontrol_wait(); };
  if (tile < queries) {
    return quantize_scores<kType, kAligned, true>(a, bh, tile, wait, shared.columns);
  }
  tile -= queries;
  if (tile < keys) {
    return quantize_scores<kType, kAligned, false>(a, bh, tile, wait, shared.columns);
  }
  quantize_values<kType, kAligned>(a, bh, tile - keys, wait, shared.values);
}

}  // namespace openvc::cuda::prepare
