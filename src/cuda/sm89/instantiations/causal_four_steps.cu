// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/sm89/configurations.hpp"
#include "cuda/sm89/launch_kernel.cuh"

namespace openvc::cuda::sm89 {

template void launch_kernel<CausalFourSteps>(const Parameters&, const DeviceInfo&, cudaStream_t);

}  // namespace openvc::cuda::sm89
