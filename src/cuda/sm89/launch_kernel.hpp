// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include "cuda/attention/parameters.cuh"
#include "cuda/host/device.hpp"

namespace openvc::cuda::sm89 {

/// Queues the kernel of one configuration on the current device, which `device` describes. Throws
/// openvc::Error. launch_kernel.cuh defines it, the files of instantiations/ compile it.
template <class Config>
void launch_kernel(const Parameters& parameters, const DeviceInfo& device, cudaStream_t stream);

}  // namespace openvc::cuda::sm89
