// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace openvc::cuda::prepare {

inline constexpr int kAxesThreads = 512;   // of a block that finds axes
inline constexpr int kBasisThreads = 256;  // of one that computes a part of a basis

/// A thread block as the team of a rule (numerics/team.hpp).
struct BlockTeam {
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
};

}  // namespace openvc::cuda::prepare
