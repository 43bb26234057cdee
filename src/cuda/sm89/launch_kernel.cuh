// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "cuda/attention/launch_kernel.cuh"
#include "cuda/sm89/kernel.cuh"
#include "cuda/sm89/launch_kernel.hpp"

// Definition of the launcher: whoever includes this compiles the kernel, which takes minutes.
namespace openvc::cuda::sm89 {

template <class Config>
void launch_kernel(const Parameters& parameters, const DeviceInfo& device, cudaStream_t stream) {
  constexpr KernelShape kKernel{.threads = kThreads, .shared_bytes = sizeof(Storage<Config>)};
  static_assert(kKernel.shared_bytes <= kSharedMemoryLimit);
  launch_persistent<Config>(attention_kernel<Config>, kKernel, parameters, device, stream);
}

}  // namespace openvc::cuda::sm89
