// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/fragment_output.cuh"
#include "cuda/attention/parameters.cuh"
#include "cuda/attention/work.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/sm89/config.hpp"
#include "cuda/sm89/mainloop.cuh"
#include "cuda/sm89/storage.cuh"

namespace openvc::cuda::sm89 {

/// Work of one warp: main loop and output of every work item of the block.
template <class Config>
__device__ __forceinline__ void consume(const Parameters& parameters, Storage<Config>& shared,
                                        const schedule::ClusterCoord& coord, int warp) {
  Consumer<Config> consumer{parameters, shared, warp};
  const schedule::WorkQueue queue(parameters.problem, kRowsPerBlock, 1);
  for (std::int64_t i = coord.cluster; i < queue.count; i += coord.clusters) {
    const schedule::WorkTile work = queue.tile(i, coord.rank);
    if (!has_queries<Config>(parameters, work, coord)) continue;
    consumer.begin_work(work);
    consumer.run_mainloop(consumer.tiles(parameters.problem_of(work.batch_head)));
    store_rows(consumer, work.batch_head);
  }
}

template <class Config>
__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(const __grid_constant__ Parameters parameters) {
  constexpr KernelConfig kConfig = Config::kValue;
  auto& shared = ptx::dynamic_shared<Storage<Config>>();
  const schedule::ClusterCoord coord{.cluster = blockIdx.x, .clusters = gridDim.x};
  const int warp = __shfl_sync(0xFFFF'FFFFu, static_cast<int>(threadIdx.x) / kWarpThreads, 0);

  if (threadIdx.x == 0) {
    for (int i = 0; i < kConfig.key_stages; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.key_full[i]), kThreads);
      ptx::mbarrier_init(ptx::shared_address(&shared.key_empty[i]), kWarps);
    }
    for (int i = 0; i < kConfig.value_stages; ++i) {
      ptx::mbarrier_init(ptx::shared_address(&shared.value_full[i]), kThreads);
      ptx::mbarrier_init(ptx::shared_address(&shared.value_empty[i]), kWarps);
    }
  }
  __syncthreads();

  // Everything above is independent of earlier kernels; wait for them here.
  ptx::griddepcontrol_wait();

  consume<Config>(parameters, shared, coord, warp);
}

}  // namespace openvc::cuda::sm89
