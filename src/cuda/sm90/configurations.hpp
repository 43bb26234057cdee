// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "cuda/attention/kernel_table.hpp"
#include "cuda/sm90/config.hpp"

// The kernels that are compiled, each in its file of instantiations/.
//
// What residual columns cost in shared memory must not shorten the rings of heads that cannot use
// them: one kernel for each number of residual k-steps that a stage has room for. All causal calls
// with residual columns share one kernel.
namespace openvc::cuda::sm90 {

struct Dense : Hopper {
  static constexpr std::string_view kName = "Dense";
  static constexpr KernelConfig kValue{};
};

struct DenseTwoSteps : Hopper {
  static constexpr std::string_view kName = "DenseTwoSteps";
  static constexpr KernelConfig kValue{.max_extra_steps = 2, .key_stages = 4, .value_stages = 4};
};

struct DenseFourSteps : Hopper {
  static constexpr std::string_view kName = "DenseFourSteps";
  static constexpr KernelConfig kValue{.max_extra_steps = 4, .key_stages = 3, .value_stages = 4};
};

struct Causal : Hopper {
  static constexpr std::string_view kName = "Causal";
  static constexpr KernelConfig kValue{.causal = true};
};

struct CausalFourSteps : Hopper {
  static constexpr std::string_view kName = "CausalFourSteps";
  static constexpr KernelConfig kValue{
      .max_extra_steps = 4, .key_stages = 3, .value_stages = 4, .causal = true};
};

// Values of the CMake option OPENVC_KERNEL_SET, kernels in the order in which a launch tries them.
// Each set serves every call; the small one compiles sooner and runs slower.
namespace kernel_sets {
using all = KernelSet<Dense, DenseTwoSteps, DenseFourSteps, Causal, CausalFourSteps>;
using ci = KernelSet<DenseFourSteps, CausalFourSteps>;
}  // namespace kernel_sets

}  // namespace openvc::cuda::sm90
