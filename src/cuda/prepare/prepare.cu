// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/prepare/prepare.hpp"

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/host/kernel_launch.hpp"
#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/axes.cuh"
#include "cuda/prepare/find_bounds.cuh"
#include "cuda/prepare/finish.cuh"
#include "cuda/prepare/passes.cuh"
#include "cuda/prepare/quantize_on_axes.cuh"
#include "cuda/prepare/quantize_wide_on_axes.cuh"
#include "cuda/prepare/repair.cuh"
#include "cuda/prepare/sample.cuh"
#include "cuda/prepare/tile_tree.cuh"
#include "cuda/prepare/workspace.hpp"
#include "numerics/plan_scores.hpp"

// The launches of a preparation. The first one waits for everything before it in the stream; each
// of the others starts while the one before it ends. All of them wait for that one, so what an
// earlier kernel has written is complete as well. With axes, the statistics are the exception: they
// read inputs alone, and only their last block waits, for the axes that are found meanwhile. Where
// the bounds of sequences are found first, what reads them waits for the end of that.
namespace openvc::cuda::prepare {
namespace {

Source make_source(const TensorView& tensor, std::int64_t heads) {
  const auto size = static_cast<std::int64_t>(element_size(tensor.type));
  const auto stride = [&](Axis axis) {
    return tensor.shape[axis] > 1 ? tensor.strides[axis] * size : 0;
  };
  return {.data = static_cast<const std::byte*>(tensor.data),
          .batch_stride = stride(kBatch),
          .row_stride = stride(kSequence),
          .head_stride = stride(kHead),
          .tokens = tensor.shape[kSequence],
          .chunks = static_cast<int>(tensor.shape[kChannel]) / kChunkChannels,
          .heads_per_group = static_cast<unsigned>(heads / tensor.shape[kHead])};
}

/// Whether every row of a tensor starts at a multiple of 16 bytes.
bool is_aligned(const Source& source) {
  constexpr std::uintptr_t kMask = sizeof(uint4) - 1;
  const auto all = reinterpret_cast<std::uintptr_t>(source.data) |
                   static_cast<std::uintptr_t>(source.batch_stride) |
                   static_cast<std::uintptr_t>(source.row_stride) |
                   static_cast<std::uintptr_t>(source.head_stride);
  return (all & kMask) == 0;
}

WorkspaceLayout layout_for(const schedule::PrepareRequest& request) {
  return workspace_layout(
      request.problem,
      numerics::wants_axes(request.numerics, request.problem.queries, request.problem.keys),
      schedule::with_value_axes(request), request.selection.mask != nullptr);
}

Arguments make_arguments(const schedule::PrepareRequest& request, std::byte* block,
                         std::byte* workspace) {
  Arguments a{};
  a.q = make_source(request.q, request.problem.heads);
  a.k = make_source(request.k, request.problem.heads);
  a.v = make_source(request.v, request.problem.heads);
  a.problem = request.problem;
  a.block_layout = schedule::prepared_layout(request);
  a.workspace_layout = layout_for(request);
  a.block = block;
  a.workspace = workspace;
  a.softmax_scale = request.softmax_scale;
  a.numerics = request.numerics;
  a.with_log_sum_exp = request.with_log_sum_exp;
  a.with_spare_residuals = schedule::with_spare_residuals(request);
  a.with_bounds = request.with_bounds();
  a.selection = request.selection;
  a.sequences = request.sequences;
  a.multiprocessors = device_info(request.q.device.index).multiprocessors;
  return a;
}

// Blocks are counted in 32 bits. Each of them reads or writes kilobytes of its own, so that no
// device has memory for as many.

/// The axes are found by few thread blocks, while others collect the statistics.
template <ElementType kType, bool kAligned>
void launch_axes(const Arguments& a, cudaStream_t stream) {
  const std::int64_t heads = a.problem.batch_heads();
  const std::int64_t parts = heads * kSampledTensors * kSampleParts;
  reserve_shared_memory(find_axes, sizeof(FindAxesStorage));
  launch_kernel(find_sample_ranges<kType, kAligned>, parts, kTileThreads, LaunchOrder::after_stream,
                stream, a);
  launch_kernel(sum_sample_moments<kType, kAligned>, parts, kTileThreads,
                LaunchOrder::overlaps_previous, stream, a);
  launch_kernel(find_axes, LaunchShape{heads * kHeadParts, kAxesThreads, sizeof(FindAxesStorage)},
                LaunchOrder::overlaps_previous, stream, a);
}

/// The second pass of a call in which heads may be on axes.
template <ElementType kType, bool kAligned>
void launch_quantize_with_axes(const Arguments& a, cudaStream_t stream) {
  const std::int64_t tiles = a.problem.batch_heads() * tiles_per_head(a);
  const std::int64_t off_axes = std::int64_t{kOffAxesBlocksPerSm} * a.multiprocessors;
  launch_kernel(quantize_off_axes<kType, kAligned>, tiles < off_axes ? tiles : off_axes,
                kTileThreads, LaunchOrder::overlaps_previous, stream, a);
  if constexpr (kType == ElementType::float32) {
    launch_kernel(quantize_wide_on_axes, tiles, kTileThreads, LaunchOrder::overlaps_previous,
                  stream, a);
  } else {
    const std::int64_t room = std::int64_t{kOnAxesBlocksPerSm} * a.multiprocessors;
    reserve_shared_memory(quantize_on_axes<kType, kAligned>, sizeof(OnAxesStorage));
    const LaunchShape shape{tiles < room ? tiles : room, kTileThreads, sizeof(OnAxesStorage)};
    launch_kernel(quantize_on_axes<kType, kAligned>, shape, LaunchOrder::overlaps_previous, stream,
                  a);
  }
}

template <ElementType kType, bool kAligned>
void launch_passes(const Arguments& a, cudaStream_t stream) {
  const std::int64_t heads = a.problem.batch_heads();
  const WorkspaceLayout& tiles = a.workspace_layout;
  if (a.with_bounds) {
    launch_kernel(find_bounds, a.problem.batch, kBoundsThreads, LaunchOrder::after_stream, stream,
                  a);
  }
  if (tiles.with_any_axes()) launch_axes<kType, kAligned>(a, stream);
  const bool may_overlap = tiles.with_any_axes() && !a.with_bounds;
  launch_kernel(collect_statistics<kType, kAligned>,
                heads * (tiles.query_tiles + 2 * tiles.key_tiles), kTileThreads,
                may_overlap ? LaunchOrder::overlaps_previous : LaunchOrder::after_stream, stream,
                a);
  for (int level = 1; level <= tiles.tree.levels; ++level) {
    launch_kernel(reduce_tiles, heads * kColumnStatistics * TileTree::rows(tiles.tree.tiles, level),
                  kTileThreads, LaunchOrder::overlaps_previous, stream, a, level);
  }
  launch_kernel(finish_statistics, heads * kHeadParts, kFinishThreads,
                LaunchOrder::overlaps_previous, stream, a);
  if (tiles.with_any_axes()) {
    launch_kernel(write_basis<kType>, heads * kHeadParts * kBasisBlocks, kBasisThreads,
                  LaunchOrder::overlaps_previous, stream, a);
    launch_quantize_with_axes<kType, kAligned>(a, stream);
  } else {
    launch_kernel(quantize_inputs<kType, kAligned>, heads * tiles_per_head(a), kTileThreads,
                  LaunchOrder::overlaps_previous, stream, a);
  }
}

template <ElementType kType, bool kAligned>
void launch_repair(const Arguments& a, cudaStream_t stream) {
  if (a.problem.repair_rows == 0) return;
  const std::int64_t heads = a.problem.batch_heads();
  launch_kernel(select_repair_tokens, heads, kSelectThreads, LaunchOrder::overlaps_previous, stream,
                a);
  launch_kernel(write_repair_rows<kType, kAligned>, heads * a.problem.repair_blocks(), kTileThreads,
                LaunchOrder::overlaps_previous, stream, a);
}

template <ElementType kType, bool kAligned>
void launch_all(const Arguments& a, cudaStream_t stream) {
  launch_passes<kType, kAligned>(a, stream);
  launch_repair<kType, kAligned>(a, stream);
}

template <bool kAligned>
void launch_all(ElementType type, const Arguments& a, cudaStream_t stream) {
  switch (type) {
    case ElementType::bfloat16:
      return launch_all<ElementType::bfloat16, kAligned>(a, stream);
    case ElementType::float16:
      return launch_all<ElementType::float16, kAligned>(a, stream);
    case ElementType::float32:
      return launch_all<ElementType::float32, kAligned>(a, stream);
  }
}

}  // namespace

std::size_t workspace_bytes(const schedule::PrepareRequest& request) {
  return layout_for(request).bytes;
}

void launch(const schedule::PrepareRequest& request, std::byte* block, std::byte* workspace,
            void* stream) {
  const DeviceGuard guard(request.q.device.index);
  const Arguments a = make_arguments(request, block, workspace);
  const auto queue = static_cast<cudaStream_t>(stream);
  if (is_aligned(a.q) && is_aligned(a.k) && is_aligned(a.v)) {
    launch_all<true>(request.q.type, a, queue);
  } else {
    launch_all<false>(request.q.type, a, queue);
  }
}

std::vector<numerics::HeadPlan> read_plans(const schedule::PrepareRequest& request,
                                           const std::byte* workspace, void* stream) {
  const DeviceGuard guard(request.q.device.index);
  const WorkspaceLayout layout = layout_for(request);
  const auto queue = static_cast<cudaStream_t>(stream);
  std::vector<numerics::HeadPlan> plans(static_cast<std::size_t>(request.problem.batch_heads()));
  check(cudaMemcpyAsync(plans.data(), workspace + layout.plans,
                        plans.size() * sizeof(numerics::HeadPlan), cudaMemcpyDeviceToHost, queue),
        "copying the plans of the heads");
  check(cudaStreamSynchronize(queue), "waiting for the plans of the heads");
  return plans;
}

}  // namespace openvc::cuda::prepare
