// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/sm89/launch.hpp"

#include <cuda_runtime.h>

#include "cuda/attention/arguments.hpp"
#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/sm89/kernel_table.hpp"

namespace openvc::cuda::sm89 {

void launch(const schedule::PreparedView& inputs, const MutableTensorView& out, float* log_sum_exp,
            void* stream) {
  const DeviceInfo& device = device_info(out.device.index);
  const Kernel* kernel = find_kernel(kernels(), inputs.problem.mask, inputs.max_extra_steps);
  if (kernel == nullptr) {
    throw Error(ErrorCode::unsupported,
                "max_extra_steps: " + std::to_string(inputs.max_extra_steps) +
                    "; expected a number that a kernel of this build for compute capability 8.9 "
                    "and 12 has room for. Ask for fewer "
                    "steps, or build with OPENVC_KERNEL_SET=all.");
  }
  const DeviceGuard guard(device.ordinal);
  kernel->launch(make_parameters({inputs, out, log_sum_exp}), device,
                 static_cast<cudaStream_t>(stream));
}

}  // namespace openvc::cuda::sm89
