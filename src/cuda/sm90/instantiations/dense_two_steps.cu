// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/sm90/configurations.hpp"
#include "cuda/sm90/launch_kernel.cuh"

namespace openvc::cuda::sm90 {

template void launch_kernel<DenseTwoSteps>(const Parameters&, const DeviceInfo&, cudaStream_t);

}  // namespace openvc::cuda::sm90
