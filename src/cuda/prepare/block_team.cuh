// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/moments.hpp"

namespace openvc::cuda::prepare {

inline constexpr int kAxesThreads = 512;   // of a block that finds axes
inline constexpr int kBasisThreads = 256;  // of one that computes a part of a basis

/// A thread block as the team of a rule (numerics/team.hpp).
struct BlockTeam {
  numerics::Moments* near = nullptr;  ///< room in shared memory, for rules that fetch moments

  static constexpr int kWidth = 1;
  static constexpr int kProductWidth = 4;

  /// Rules are functions of host and device, so this must be one. The host never calls it.
  template <class Task>
  __host__ __device__ __forceinline__ void run([[maybe_unused]] int tasks,
                                               [[maybe_unused]] const Task& task) const {
#if defined(__CUDA_ARCH__)
    for (int i = static_cast<int>(threadIdx.x); i < tasks; i += static_cast<int>(blockDim.x)) {
      task(i);
    }
    __syncthreads();
#endif
  }

  [[nodiscard]] __host__ __device__ __forceinline__ const numerics::Moments& fetch(
      const numerics::Moments& moments) const {
#if defined(__CUDA_ARCH__)
    static_assert(sizeof(moments) % sizeof(uint4) == 0);
    const auto* source = reinterpret_cast<const uint4*>(&moments);
    auto* target = reinterpret_cast<uint4*>(near);
    constexpr int kUnits = static_cast<int>(sizeof(moments) / sizeof(uint4));
    __syncthreads();
#pragma unroll 8
    for (int i = static_cast<int>(threadIdx.x); i < kUnits; i += kAxesThreads) {
      target[i] = source[i];
    }
    __syncthreads();
    return *near;
#else
    return moments;
#endif
  }
};

}  // namespace openvc::cuda::prepare
