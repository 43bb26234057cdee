// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>
#include <string_view>

#include "cuda/sm90/config.hpp"
#include "cuda/sm90/launch_kernel.hpp"
#include "openvc/options.hpp"

// Which kernel serves a call.
namespace openvc::cuda::sm90 {

/// One compiled configuration.
struct Kernel {
  std::string_view name;
  KernelConfig config;
  void (*launch)(const Parameters& parameters, const DeviceInfo& device, cudaStream_t stream);
};

/// All kernels of this build, in the order in which a launch tries them.
std::span<const Kernel> kernels();

/// A kernel with room for more residual columns than the prepared inputs have gives the same bits;
/// only its rings are shorter.
constexpr bool can_serve(const KernelConfig& config, Mask mask, int max_extra_steps) {
  return config.causal == (mask == Mask::causal) && config.max_extra_steps >= max_extra_steps;
}

/// The first kernel that can serve such calls, null if there is none.
const Kernel* find_kernel(std::span<const Kernel> kernels, Mask mask, int max_extra_steps);

}  // namespace openvc::cuda::sm90
