// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/kernel_config.hpp"
#include "cuda/attention/parameters.cuh"
#include "schedule/work_queue.hpp"

namespace openvc::cuda {

/// Whether a cluster computes the item that has this tile for the block at `coord`. The queue is
/// made for the longest sequence: items where no block of the cluster has queries are left out. All
/// warps that load, multiply or compute ask this, because they wait for each other.
template <class Config>
[[nodiscard]] __device__ __forceinline__ bool has_queries(const Parameters& parameters,
                                                          const schedule::WorkTile& work,
                                                          const schedule::ClusterCoord& coord) {
  if (parameters.bounds == nullptr) return true;
  return (work.query_tile - coord.rank) * Config::kShape.query_rows <
         parameters.bounds_of(work.batch_head).queries;
}

}  // namespace openvc::cuda
