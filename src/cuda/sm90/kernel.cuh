// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/fragment_output.cuh"
#include "cuda/attention/load.cuh"
#include "cuda/attention/parameters.cuh"
#include "cuda/attention/storage.cuh"
#include "cuda/attention/work.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/synchronize.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/config.hpp"
#include "cuda/sm90/mainloop.cuh"

namespace openvc::cuda::sm90 {

/// Work of one consumer warpgroup: main loop and output of every work item of the cluster.
template <class Config>
__device__ __forceinline__ void consume(const Parameters& parameters, Storage<Config>& shared,
                                        const schedule::ClusterCoord& coord, int warpgroup) {
  Consumer<Config> consumer{parameters, shared, warpgroup};
  // No lambda: the compiler would not inline one into the larger kernels, and then serialises
  // wgmma.
  const schedule::WorkQueue queue(parameters.problem, kRowsPerBlock, Config::kValue.cluster_size);
  for (std::int64_t i = coord.cluster; i < queue.count; i += coord.clusters) {
    const schedule::WorkTile work = queue.tile(i, coord.rank);
    // A vote and a shuffle tell the compiler that what comes from memory is the same in all
    // threads. Without them it keeps stages of the rings in vector registers, for all loops around
    // them, and fetches them in front of products: 18 clocks of the 1,068 of a key block on an
    // H200.
    if (!__any_sync(0xFFFF'FFFFu, has_queries<Config>(parameters, work, coord))) continue;
    consumer.begin_work(parameters.head_rules[work.batch_head], work);
    const int count = consumer.tiles(parameters.problem_of(work.batch_head)).count;
    consumer.run_mainloop(__shfl_sync(0xFFFF'FFFFu, count, 0));
    store_rows(consumer, work.batch_head);
  }
}

template <class Config>
__device__ __forceinline__ void load(const Loader<Config>& loader, WarpRole role) {
  if (role == WarpRole::query_loader) loader.load_queries();
  if (role == WarpRole::key_loader) loader.load_keys();
  if (role == WarpRole::value_loader) loader.load_values();
}

template <class Config>
__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(const __grid_constant__ Parameters parameters) {
  constexpr KernelConfig kConfig = Config::kValue;
  auto* dynamic_shared = &ptx::dynamic_shared<std::uint8_t>();
  auto& shared = *reinterpret_cast<Storage<Config>*>(
      dynamic_shared + (0u - ptx::shared_address(dynamic_shared)) % kTileAlignment);
  schedule::ClusterCoord coord;
  if constexpr (kConfig.cluster_size > 1) coord.rank = ptx::cluster_ctarank();
  coord.cluster = blockIdx.x / kConfig.cluster_size;
  coord.clusters = gridDim.x / kConfig.cluster_size;
  const int warp = __shfl_sync(0xFFFF'FFFFu, static_cast<int>(threadIdx.x) / kWarpThreads, 0);

  if (threadIdx.x == 0) {
    constexpr int kReaders = kConsumerWarps * kConfig.cluster_size;
    ptx::mbarrier_init(ptx::shared_address(&shared.query_full), 1);
    ptx::mbarrier_init(ptx::shared_address(&shared.query_empty), kConsumerWarps);
    for (int i = 0; i < kConfig.key_stages; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.key_full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.key_empty[i]), kReaders);
    }
    for (int i = 0; i < kConfig.value_stages; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.value_full[i]), 1);
      ptx::mbarrier_init(ptx::shared_address(&shared.value_empty[i]), kReaders);
    }
    ptx::fence_mbarrier_init();
    ptx::prefetch_tensormap(&parameters.query_map);
    ptx::prefetch_tensormap(&parameters.key_map);
    ptx::prefetch_tensormap(&parameters.value_map);
  }
  __syncthreads();
  if constexpr (kConfig.cluster_size > 1) {
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  }

  // Everything above is independent of earlier kernels; wait for them here.
  ptx::griddepcontrol_wait();

  if (warp < kWarpgroupWarps) {
    ptx::setmaxnreg_dec<role_registers(warp_role(0))>();
    if (ptx::elect_sync()) load(Loader<Config>{parameters, shared, coord}, warp_role(warp));
    __syncwarp();
  } else {
    ptx::setmaxnreg_inc<role_registers(WarpRole::consumer)>();
    consume<Config>(parameters, shared, coord, warp / kWarpgroupWarps - 1);
  }
  if constexpr (kConfig.cluster_size > 1) {
    // No block may exit while another still sends to its shared memory.
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  }
}

}  // namespace openvc::cuda::sm90
