// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/ptx/shared_memory.cuh"

// The tokens of each sequence that take part: how many, where they are among those of packed
// sequences, and with a mask of keys which ones they are. All that follows reads the tensors
// through them, as if there were no others.
namespace openvc::cuda::prepare {

inline constexpr int kBoundsThreads = 1024;  // a block for each sequence: all that it may have
inline constexpr int kBoundsWarps = kBoundsThreads / kWarp;

struct FindBoundsStorage {
  std::int32_t counts[kBoundsWarps];
};

/// One bit per lane: whether key `key` of the sequence takes part.
__device__ __forceinline__ unsigned selected_lanes(const std::uint8_t* mask, std::int64_t stride,
                                                   std::int32_t key, std::int32_t end) {
  return __ballot_sync(kAllLanes, key < end && mask[key * stride] != 0);
}

/// Grid (batch), kBoundsThreads threads. Every warp has a contiguous range of keys.
static __global__ void __launch_bounds__(kBoundsThreads)
    find_bounds(const __grid_constant__ Arguments a) {
  auto& shared = ptx::static_shared<FindBoundsStorage>();
  const std::int64_t batch = blockIdx.x;
  schedule::SequenceBounds& bounds = a.bounds()[batch];
  if (a.sequences.count > 0) {
    if (threadIdx.x == 0) {
      bounds = schedule::packed_bounds(a.sequences, batch, a.q.tokens, a.k.tokens);
    }
    return;
  }
  const KeySelection& selection = a.selection;
  const auto all = static_cast<std::int32_t>(a.problem.keys);
  std::int32_t length = all;
  if (selection.lengths != nullptr) {
    length = selection.lengths[batch];
    length = length < 0 ? 0 : (length < all ? length : all);
  }
  const auto queries = static_cast<std::int32_t>(a.problem.queries);
  if (selection.mask == nullptr) {
    if (threadIdx.x == 0) bounds = {queries, length};
    return;
  }
  const std::uint8_t* mask = selection.mask + batch * selection.mask_batch_stride;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto range =
      static_cast<std::int32_t>(numerics::round_up(numerics::ceil_div(all, kBoundsWarps), kWarp));
  const std::int32_t first = warp * range;
  const std::int32_t last = first + range < length ? first + range : length;
  std::int32_t count = 0;
#pragma unroll 8
  for (std::int32_t key = first; key < last; key += kWarp) {
    count += __popc(selected_lanes(mask, selection.mask_key_stride, key + lane, last));
  }
  if (lane == 0) shared.counts[warp] = count;
  __syncthreads();
  std::int32_t before = 0;
  for (int i = 0; i < warp; ++i) before += shared.counts[i];
  if (warp == kBoundsWarps - 1 && lane == 0) bounds = {queries, before + count};
  std::int32_t* selected = a.selected_keys(batch);
  const unsigned lower_lanes = (1u << lane) - 1u;
#pragma unroll 8
  for (std::int32_t key = first; key < last; key += kWarp) {
    const unsigned lanes = selected_lanes(mask, selection.mask_key_stride, key + lane, last);
    if ((lanes >> lane & 1u) != 0) selected[before + __popc(lanes & lower_lanes)] = key + lane;
    before += __popc(lanes);
  }
}

}  // namespace openvc::cuda::prepare
