// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/load.cuh"
#include "cuda/attention/parameters.cuh"
#include "cuda/attention/work.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/synchronize.cuh"
#include "cuda/ptx/tensor_memory.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm100/config.hpp"
#include "cuda/sm100/epilogue.cuh"
#include "cuda/sm100/mainloop.cuh"
#include "cuda/sm100/multiply.cuh"
#include "cuda/sm100/storage.cuh"

namespace openvc::cuda::sm100 {

/// Work of one consumer warpgroup: main loop and output of every work item of the cluster.
template <class Config>
__device__ __forceinline__ void consume(Consumer<Config>& consumer,
                                        const schedule::ClusterCoord& coord) {
  const Parameters& parameters = consumer.parameters;
  const schedule::WorkQueue queue(parameters.problem, kRowsPerBlock, Config::kValue.cluster_size);
  for (std::int64_t i = coord.cluster; i < queue.count; i += coord.clusters) {
    const schedule::WorkTile work = queue.tile(i, coord.rank);
    if (!has_queries<Config>(parameters, work, coord)) continue;
    consumer.begin_work(parameters.head_rules[work.batch_head], work);
    consumer.run_mainloop(consumer.tiles(parameters.problem_of(work.batch_head)).count);
    store_row(consumer, work.batch_head);
  }
}

template <class Config>
__device__ __forceinline__ void initialize_barriers(Storage<Config>& shared) {
  const auto initialize = [](auto& barriers, std::uint32_t arrivals) {
    for (std::uint64_t& barrier : barriers) {
      ptx::mbarrier_init(ptx::shared_address(&barrier), arrivals);
    }
  };
  ptx::mbarrier_init(ptx::shared_address(&shared.query_full), 1);
  ptx::mbarrier_init(ptx::shared_address(&shared.query_empty), 1 + kConsumerWarps);
  initialize(shared.key_full, 1);
  initialize(shared.key_empty, 1);
  initialize(shared.value_full, 1);
  initialize(shared.value_empty, 1);
  initialize(shared.score_full, 1);
  initialize(shared.probability_full, kWarpgroupWarps);
  initialize(shared.partial_full, 1);
  initialize(shared.partial_empty, kWarpgroupWarps);
  ptx::fence_mbarrier_init();
}

/// Loads all tiles of a kind, and waits until they have been multiplied: what gives stages back are
/// arrivals of the tensor core, and no block may end before they have come.
template <class Config>
__device__ __forceinline__ void load(const Loader<Config>& loader, WarpRole role) {
  auto& shared = loader.shared;
  if (role == WarpRole::key_loader) loader.wait_until_empty(shared.key_empty, loader.load_keys());
  if (role == WarpRole::value_loader) {
    loader.wait_until_empty(shared.value_empty, loader.load_values());
  }
  if (role == WarpRole::query_loader) {
    ptx::mbarrier_wait(ptx::shared_address(&shared.query_empty), loader.load_queries());
  }
}

template <class Config>
__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(const __grid_constant__ Parameters parameters) {
  auto* dynamic_shared = &ptx::dynamic_shared<std::uint8_t>();
  auto& shared = *reinterpret_cast<Storage<Config>*>(
      dynamic_shared + (0u - ptx::shared_address(dynamic_shared)) % kTileAlignment);
  schedule::ClusterCoord coord;
  coord.cluster = blockIdx.x;
  coord.clusters = gridDim.x;
  const int warp = __shfl_sync(0xFFFF'FFFFu, static_cast<int>(threadIdx.x) / kWarpThreads, 0);
  const WarpRole role = warp_role(warp);

  if (threadIdx.x == 0) {
    initialize_barriers<Config>(shared);
    ptx::prefetch_tensormap(&parameters.query_map);
    ptx::prefetch_tensormap(&parameters.key_map);
    ptx::prefetch_tensormap(&parameters.value_map);
  }
  if (role == WarpRole::multiplier) {
    ptx::tcgen05_alloc<tensor_memory::kAllocated>(ptx::shared_address(&shared.tensor_memory));
    ptx::tcgen05_relinquish_alloc_permit();
    ptx::tcgen05_fence_before_thread_sync();
  }
  __syncthreads();
  ptx::tcgen05_fence_after_thread_sync();
  const std::uint32_t columns = shared.tensor_memory;

  // Everything above is independent of earlier kernels; wait for them here.
  ptx::griddepcontrol_wait();

  if (role == WarpRole::consumer) {
    ptx::setmaxnreg_inc<role_registers(WarpRole::consumer)>();
    const auto first_lane = static_cast<std::uint32_t>(warp % kWarpgroupWarps * kWarpThreads);
    Consumer<Config> consumer{parameters, shared, warp / kWarpgroupWarps - 1,
                              columns + first_lane * ptx::kTensorMemoryLane};
    consume(consumer, coord);
    ptx::tcgen05_fence_before_thread_sync();
  } else {
    ptx::setmaxnreg_dec<role_registers(WarpRole::multiplier)>();
    if (ptx::elect_sync()) {
      load(Loader<Config>{parameters, shared, coord}, role);
      if (role == WarpRole::multiplier) {
        Multiplier<Config>{parameters, shared, coord, columns}.run();
      }
    }
    __syncwarp();
  }
  // Consumers have read the last sums.
  __syncthreads();
  if (role == WarpRole::multiplier) {
    ptx::tcgen05_fence_after_thread_sync();
    ptx::tcgen05_dealloc<tensor_memory::kAllocated>(columns);
  }
}

}  // namespace openvc::cuda::sm100
