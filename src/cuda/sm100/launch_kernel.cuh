// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "cuda/attention/launch_kernel.cuh"
#include "cuda/sm100/kernel.cuh"
#include "cuda/sm100/launch_kernel.hpp"

// Definition of the launcher: whoever includes this compiles the kernel, which takes minutes.
namespace openvc::cuda::sm100 {

template <class Config>
void launch_kernel(const Parameters& parameters, const DeviceInfo& device, cudaStream_t stream) {
  constexpr KernelShape kKernel{.threads = kThreads,
                                .shared_bytes = kBytesWithAlignment<Storage<Config>>};
  static_assert(kKernel.shared_bytes <= kSharedMemoryLimit);
  launch_persistent<Config>(attention_kernel<Config>, kKernel, parameters, device, stream);
}

}  // namespace openvc::cuda::sm100
