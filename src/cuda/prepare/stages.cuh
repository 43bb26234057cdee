// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/finish.cuh"
#include "cuda/prepare/prepare.hpp"
#include "cuda/prepare/quantize.cuh"
#include "cuda/prepare/repair.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/prepare/workspace.hpp"

// The launches of one round of heads.
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
  // One thread block per head does up to a group by itself in less time than a launch takes.
  a.tiles_grouped = a.workspace_layout.tiles > numerics::kReductionGroup;
  return a;
}

inline dim3 grid(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1) {
  return {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

template <ElementType kType, bool kAligned>
void launch_statistics(const Arguments& a, cudaStream_t stream) {
  const WorkspaceLayout& tiles = a.workspace_layout;
  collect_statistics<kType, kAligned>
      <<<grid(tiles.query_tiles + 2 * tiles.key_tiles, a.heads), kTileThreads, 0, stream>>>(a);
}

template <ElementType kType, bool kAligned>
void launch_finish(const Arguments& a, cudaStream_t stream) {
  if (a.tiles_grouped) {
    reduce_tiles<<<grid(a.workspace_layout.tile_groups(), kColumnStatistics, a.heads),
                   numerics::kHeadDim, 0, stream>>>(a);
  }
  finish_statistics<kType, kAligned><<<grid(a.heads), kFinishThreads, 0, stream>>>(a);
}

template <ElementType kType, bool kAligned>
void launch_quantize(const Arguments& a, cudaStream_t stream) {
  const std::int64_t query_tiles = a.problem.padded_queries() / kTileRows;
  quantize_inputs<kType, kAligned>
      <<<grid(2 * a.workspace_layout.key_tiles + query_tiles, a.heads), kTileThreads, 0, stream>>>(
          a);
}

template <ElementType kType, bool kAligned>
void launch_repair(const Arguments& a, cudaStream_t stream) {
  if (a.problem.repair_rows == 0) return;
  select_repair_tokens<<<grid(a.heads), kSelectThreads, 0, stream>>>(a);
  write_repair_rows<kType, kAligned>
      <<<grid(a.problem.repair_blocks(), a.heads), kTileThreads, 0, stream>>>(a);
}

}  // namespace openvc::cuda::prepare
