// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/attention/kernel_config.hpp"
#include "cuda/attention/parameters.cuh"
#include "cuda/ptx/load.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/sm89/config.hpp"
#include "cuda/sm89/storage.cuh"
#include "schedule/ring_state.hpp"

// Tiles on their way to shared memory. All threads of the block copy a share of each, 16 bytes at a
// time, and put them where the swizzle wants them; prepared tiles are contiguous.
namespace openvc::cuda::sm89 {

/// The share of this thread of a tile whose rows have kRowBytes.
template <int kRowBytes, int kBytes>
__device__ __forceinline__ void copy_tile(std::uint8_t (&tile)[kBytes], const std::byte* source) {
  constexpr int kPass = 16 * kThreads;  // bytes that the block copies at a time
  static_assert(kPass % (8 * kRowBytes) == 0, "whole periods of the swizzle");
  const std::uint32_t first = 16 * threadIdx.x;
  const std::uint32_t target = ptx::shared_address(tile) + swizzled<kRowBytes>(first);
#pragma unroll
  for (int pass = 0; pass < kBytes; pass += kPass) {
    if (pass + kPass > kBytes && first >= kBytes - pass) break;  // a last pass of some threads
    ptx::cp_async_16(target + pass, source + first + pass, true);
  }
}

template <class Config>
struct Loader {
  static constexpr KernelConfig kConfig = Config::kValue;

  const Parameters& parameters;
  Storage<Config>& shared;

  // Each function waits until all warps have used what the stage of a ring held, and begins to copy
  // the tile of a key block into it.

  /// A K tile and its residual columns.
  __device__ __forceinline__ void load_keys(const schedule::RingState<kConfig.key_stages>& ring,
                                            std::int64_t batch_head, int block, int steps) const {
    const schedule::PreparedLayout& layout = parameters.layout;
    const std::int64_t row = std::int64_t{block} * numerics::kKeyBlock;
    ptx::mbarrier_wait(ptx::shared_address(&shared.key_empty[ring.stage]), ring.parity ^ 1u);
    copy_tile<numerics::kHeadDim>(shared.keys[ring.stage].codes,
                                  parameters.prepared + layout.key_at(batch_head, row));
    if constexpr (Storage<Config>::kWithColumns) {
      for (int step = 0; step < steps; ++step) {
        copy_tile<kStepBytes>(shared.columns(ring.stage, step).codes,
                              parameters.prepared + layout.key_columns_at(step, batch_head, row));
      }
    }
    ptx::cp_async_mbarrier_arrive_noinc(ptx::shared_address(&shared.key_full[ring.stage]));
  }

  /// A V tile.
  __device__ __forceinline__ void load_values(const schedule::RingState<kConfig.value_stages>& ring,
                                              std::int64_t batch_head, int block) const {
    ptx::mbarrier_wait(ptx::shared_address(&shared.value_empty[ring.stage]), ring.parity ^ 1u);
    copy_tile<numerics::kKeyBlock>(
        shared.values[ring.stage].codes,
        parameters.prepared + parameters.layout.value_block_at(batch_head, block));
    ptx::cp_async_mbarrier_arrive_noinc(ptx::shared_address(&shared.value_full[ring.stage]));
  }
};

}  // namespace openvc::cuda::sm89
