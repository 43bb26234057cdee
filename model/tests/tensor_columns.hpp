// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>

#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/tensor_memory.cuh"
#include "run_kernel.hpp"

// A kernel with some columns of tensor memory, of which a test writes the middle.
namespace openvc::model {

namespace ptx = cuda::ptx;

inline constexpr unsigned kColumnThreads = 128;

struct ColumnShared {
  std::uint32_t address;
  std::uint32_t other;
};

/// What the test stores in a column of a lane.
inline std::uint32_t pattern(std::uint32_t lane_of_block, std::uint32_t column) {
  return 0x9E37'79B9u * (lane_of_block * 512 + column + 1);
}

inline std::uint32_t quarter() { return threadIdx.x / 32 * 32 * ptx::kTensorMemoryLane; }

/// Allocates 64 columns, executes `body` with their address in every thread, and gives them back.
inline std::string fault_of_columns(const std::function<void(std::uint32_t)>& body,
                                    bool gives_back = true, const Schedule& schedule = {}) {
  const auto kernel = [&] {
    auto& shared = ptx::static_shared<ColumnShared>();
    if (threadIdx.x < 32) ptx::tcgen05_alloc<64>(ptx::shared_address(&shared.address));
    __syncthreads();
    const std::uint32_t address = shared.address;
    body(address);
    __syncthreads();
    if (gives_back && threadIdx.x < 32) ptx::tcgen05_dealloc<64>(address);
  };
  Grid grid;
  grid.threads = kColumnThreads;
  return fault_of(grid, schedule, kernel);
}

inline void store(std::uint32_t column) {
  std::uint32_t values[32];
  for (std::uint32_t i = 0; i < 32; ++i) {
    values[i] = pattern(threadIdx.x, (column & 0xFFFF) + i);
  }
  ptx::tcgen05_st_32x32b_x32(column, values);
}

}  // namespace openvc::model
