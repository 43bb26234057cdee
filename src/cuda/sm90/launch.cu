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
template <bool kCausal>
struct TwoSteps {
  static constexpr KernelConfig kValue{
      .max_extra_steps = 2, .key_stages = 4, .value_stages = 4, .causal = kCausal};
};
template <bool kCausal>
struct FourSteps {
  static constexpr KernelConfig kValue{
      .max_extra_steps = 4, .key_stages = 3, .value_stages = 4, .causal = kCausal};
};

template <bool kCausal>
void launch_for_steps(const Parameters& parameters, int max_extra_steps, const DeviceInfo& device,
                      cudaStream_t stream) {
  if (max_extra_steps == 0) {
    launch_kernel<Plain<kCausal>>(parameters, device, stream);
  } else if (max_extra_steps <= 2) {
    launch_kernel<TwoSteps<kCausal>>(parameters, device, stream);
  } else {
    launch_kernel<FourSteps<kCausal>>(parameters, device, stream);
  }
}

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
  if (inputs.problem.mask == Mask::causal) {
    launch_for_steps<true>(parameters, inputs.max_extra_steps, device, queue);
  } else {
    launch_for_steps<false>(parameters, inputs.max_extra_steps, device, queue);
  }
}

}  // namespace openvc::cuda::sm90
