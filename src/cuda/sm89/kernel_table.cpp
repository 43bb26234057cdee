// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/sm89/kernel_table.hpp"

#include <array>

#include "cuda/sm89/configurations.hpp"
#include "cuda/sm89/launch_kernel.hpp"

namespace openvc::cuda::sm89 {
namespace {

template <class... Configs>
constexpr auto make_table(KernelSet<Configs...>) {
  return std::array{Kernel{Configs::kName, Configs::kValue, launch_kernel<Configs>}...};
}

constexpr auto kKernels = make_table(kernel_sets::OPENVC_KERNEL_SET{});

}  // namespace

std::span<const Kernel> kernels() { return kKernels; }

}  // namespace openvc::cuda::sm89
