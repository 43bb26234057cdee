// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/sm100/configurations.hpp"
#include "cuda/sm100/launch_kernel.cuh"

namespace openvc::cuda::sm100 {

template void launch_kernel<Dense>(const Parameters&, const DeviceInfo&, cudaStream_t);

}  // namespace openvc::cuda::sm100
