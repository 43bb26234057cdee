// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "cuda/attention/kernel_table.hpp"
#include "cuda/sm89/config.hpp"

// The kernels that are compiled, each in its file of instantiations/.
//
// A kernel for each number of residual k-steps that a stage has room for; all causal calls share
// one.
namespace openvc::cuda::sm89 {

struct Dense : Ada {
  static constexpr std::string_view kName = "Dense";
  static constexpr KernelConfig kValue{.cluster_size = 1, .key_stages = 2, .value_stages = 2};
};

struct DenseTwoSteps : Ada {
  static constexpr std::string_view kName = "DenseTwoSteps";
  static constexpr KernelConfig kValue{
      .cluster_size = 1, .max_extra_steps = 2, .key_stages = 2, .value_stages = 2};
};

struct DenseFourSteps : Ada {
  static constexpr std::string_view kName = "DenseFourSteps";
  static constexpr KernelConfig kValue{
      .cluster_size = 1, .max_extra_steps = 4, .key_stages = 2, .value_stages = 2};
};

struct CausalFourSteps : Ada {
  static constexpr std::string_view kName = "CausalFourSteps";
  static constexpr KernelConfig kValue{
      .cluster_size = 1, .max_extra_steps = 4, .key_stages = 2, .value_stages = 2, .causal = true};
};

// Values of the CMake option OPENVC_KERNEL_SET, kernels in the order in which a launch tries them.
// Each set serves every call; the small one compiles sooner and runs slower.
namespace kernel_sets {
using all = KernelSet<Dense, DenseTwoSteps, DenseFourSteps, CausalFourSteps>;
using ci = KernelSet<DenseFourSteps, CausalFourSteps>;
}  // namespace kernel_sets

}  // namespace openvc::cuda::sm89
