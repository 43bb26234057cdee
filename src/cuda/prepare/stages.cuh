// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/finish.cuh"
#include "cuda/prepare/kernel_launch.hpp"
#include "cuda/prepare/prepare.hpp"
#include "cuda/prepare/quantize.cuh"
#include "cuda/prepare/repair.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/prepare/workspace.hpp"

// The launches of one round of heads. The first kernel of a round waits for everything before it;
// each of the others starts while the one before it ends. All of them wait for that one, so what an
// earlier kernel of the round has written is complete as well.
namespace openvc::cuda::prepare {

/// Grids count heads along an axis that has at most this many blocks.
inline constexpr std::int64_t kMaxHeadsPerRound = 65535;

inline std::int64_t heads_per_round(const Request& request) {
  const std::int64_t heads = request.problem.batch_heads();
  const std::int64_t wanted = request.heads_per_round > 0 ? request.heads_per_round : heads;
  return std::clamp<std::int64_t>(wanted, 1, std::min(heads, kMaxHeadsPerRound));
}

inline Source make_source(const TensorView& tensor) {
  const auto size = static_cast<std::int64_t>(element_size(tensor.type));
  const auto stride = [&](Axis axis) {
    return tensor.shape[axis] > 1 ? tensor.strides[axis] * size : 0;
  };
  return {static_cast<const std::byte*>(tensor.data), stride(kBatch), stride(kSequence),
          stride(kHead)};
}

/// Whether every row of a tensor starts at a multiple of 16 bytes.
inline bool is_aligned(const Source& source) {
  constexpr std::uintptr_t kMask = sizeof(uint4) - 1;
  const auto all = reinterpret_cast<std::uintptr_t>(source.data) |
                   static_cast<std::uintptr_t>(source.batch_stride) |
                   static_cast<std::uintptr_t>(source.row_stride) |
                   static_cast<std::uintptr_t>(source.head_stride);
  return (all & kMask) == 0;
}

/// Arguments without the round, which starts at head 0 and is as long as it may be.
inline Arguments make_arguments(const Request& request, std::byte* block, std::byte* workspace) {
  Arguments a{};
  a.q = make_source(request.q);
  a.k = make_source(request.k);
  a.v = make_source(request.v);
  a.problem = request.problem;
  a.block_layout = schedule::prepared_layout(request.problem, request.numerics.max_extra_steps,
                                             request.with_log_sum_exp);
  a.heads_per_round = heads_per_round(request);
  a.heads = a.heads_per_round;
  a.workspace_layout = workspace_layout(request.problem, a.heads_per_round);
  a.block = block;
  a.workspace = workspace;
  a.softmax_scale = request.softmax_scale;
  a.numerics = request.numerics;
  a.with_log_sum_exp = request.with_log_sum_exp;
  // The last level is left to finish_statistics().
  for (std::int64_t rows = a.workspace_layout.tiles; rows > numerics::kReductionGroup;
       rows = numerics::ceil_div(rows, numerics::kReductionGroup)) {
    ++a.levels;
  }
  return a;
}

inline dim3 grid(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1) {
  return {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

template <ElementType kType, bool kAligned>
void launch_statistics(const Arguments& a, cudaStream_t stream) {
  const WorkspaceLayout& tiles = a.workspace_layout;
  launch_kernel(collect_statistics<kType, kAligned>,
                grid(tiles.query_tiles + 2 * tiles.key_tiles, a.heads), kTileThreads,
                LaunchOrder::after_stream, a, stream);
}

inline void launch_finish(Arguments a, cudaStream_t stream) {
  const int levels = a.levels;
  for (a.levels = 0; a.levels < levels; ++a.levels) {
    launch_kernel(
        reduce_tiles,
        grid(numerics::ceil_div(a.rows_left(a.workspace_layout.tiles), numerics::kReductionGroup),
             kColumnStatistics, a.heads),
        numerics::kHeadDim, LaunchOrder::overlaps_previous, a, stream);
  }
  launch_kernel(finish_statistics, grid(kFinishParts, a.heads), kFinishThreads,
                LaunchOrder::overlaps_previous, a, stream);
}

template <ElementType kType, bool kAligned>
void launch_quantize(const Arguments& a, cudaStream_t stream) {
  const std::int64_t query_tiles = a.problem.padded_queries() / kTileRows;
  launch_kernel(quantize_inputs<kType, kAligned>,
                grid(1 + 2 * a.workspace_layout.key_tiles + query_tiles, a.heads), kTileThreads,
                LaunchOrder::overlaps_previous, a, stream);
}

template <ElementType kType, bool kAligned>
void launch_repair(const Arguments& a, cudaStream_t stream) {
  if (a.problem.repair_rows == 0) return;
  launch_kernel(select_repair_tokens, grid(a.heads), kSelectThreads, LaunchOrder::overlaps_previous,
                a, stream);
  launch_kernel(write_repair_rows<kType, kAligned>, grid(a.problem.repair_blocks(), a.heads),
                kTileThreads, LaunchOrder::overlaps_previous, a, stream);
}

}  // namespace openvc::cuda::prepare
