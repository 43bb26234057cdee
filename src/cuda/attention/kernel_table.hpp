// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "cuda/attention/kernel_config.hpp"
#include "cuda/attention/parameters.cuh"
#include "cuda/host/device.hpp"
#include "openvc/options.hpp"

// Which kernel of an architecture serves a call.
namespace openvc::cuda {

/// One compiled configuration.
struct Kernel {
  std::string_view name;
  KernelConfig config;
  void (*launch)(const Parameters& parameters, const DeviceInfo& device, cudaStream_t stream);
};

/// A kernel with room for more residual columns than the prepared inputs have gives the same bits;
/// only its rings are shorter.
constexpr bool can_serve(const KernelConfig& config, Mask mask, int max_extra_steps) {
  return config.causal == (mask == Mask::causal) && config.max_extra_steps >= max_extra_steps;
}

/// The first kernel that can serve such calls, null if there is none.
inline const Kernel* find_kernel(std::span<const Kernel> kernels, Mask mask, int max_extra_steps) {
  const auto found = std::ranges::find_if(kernels, [&](const Kernel& kernel) {
    return can_serve(kernel.config, mask, max_extra_steps);
  });
  return found == kernels.end() ? nullptr : &*found;
}

/// Configurations that are compiled together.
template <class... Configs>
struct KernelSet {};

}  // namespace openvc::cuda
