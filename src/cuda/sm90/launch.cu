// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/sm90/launch.hpp"

#include "cuda/sm90/launch.cuh"

namespace openvc::cuda::sm90 {
namespace {

// One kernel per number of residual planes that a stage has room for: what planes cost in shared
// memory must not shorten the rings of heads that cannot use them.
template <bool kCausal>
struct Plain {
  static constexpr KernelConfig kValue{.causal = kCausal};
};
struct TwoSteps {
  static constexpr KernelConfig kValue{.max_extra_steps = 2, .key_stages = 4, .value_stages = 4};
};
template <bool kCausal>
struct FourSteps {
  static constexpr KernelConfig kValue{
      .max_extra_steps = 4, .key_stages = 3, .value_stages = 4, .causal = kCausal};
};

}  // namespace

std::string refusal(int major, int minor) {
  if (major == 9 && minor == 0) return {};
  return "the Hopper kernel is built for compute capability 9.0 (sm_90a), the device has " +
         std::to_string(major) + "." + std::to_string(minor);
}

void launch(const schedule::PreparedView& inputs, const MutableTensorView& out, float* log_sum_exp,
            void* stream) {
  const DeviceInfo& device = device_info(out.device.index);
  if (const std::string reason = refusal(device.major, device.minor); !reason.empty()) {
    throw Error(ErrorCode::unsupported, reason);
  }
  const DeviceGuard guard(device.ordinal);
  const Parameters parameters = make_parameters(inputs, out, log_sum_exp);
  const auto queue = static_cast<cudaStream_t>(stream);
  const bool causal = inputs.problem.mask == Mask::causal;
  if (inputs.max_extra_steps == 0) {
    causal ? launch_kernel<Plain<true>>(parameters, device, queue)
           : launch_kernel<Plain<false>>(parameters, device, queue);
  } else if (causal) {
    launch_kernel<FourSteps<true>>(parameters, device, queue);
  } else if (inputs.max_extra_steps <= 2) {
    launch_kernel<TwoSteps>(parameters, device, queue);
  } else {
    launch_kernel<FourSteps<false>>(parameters, device, queue);
  }
}

}  // namespace openvc::cuda::sm90
