// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "cuda/attention/kernel_table.hpp"
#include "cuda/sm100/config.hpp"

// The kernels that are compiled, each in its file of instantiations/.
//
// What residual columns cost in shared memory must not shorten the rings of heads that cannot use
// them: one kernel for each number of residual k-steps that a stage has room for. All causal calls
// share one kernel.
//
// No clusters: the blocks of a cluster would have to visit the key blocks in one order, and the
// contract gives each 256 queries an order of their own. Without multicast a block asks the L2
// cache for 34 KB in 1,088 clocks, what a BF16 kernel of the same tiles asks for in the same time.
namespace openvc::cuda::sm100 {

struct Dense : Blackwell {
  static constexpr std::string_view kName = "Dense";
  static constexpr KernelConfig kValue{.cluster_size = 1};
};

struct DenseTwoSteps : Blackwell {
  static constexpr std::string_view kName = "DenseTwoSteps";
  static constexpr KernelConfig kValue{
      .cluster_size = 1, .max_extra_steps = 2, .key_stages = 4, .value_stages = 4};
};

struct DenseFourSteps : Blackwell {
  static constexpr std::string_view kName = "DenseFourSteps";
  static constexpr KernelConfig kValue{
      .cluster_size = 1, .max_extra_steps = 4, .key_stages = 3, .value_stages = 3};
};

struct CausalFourSteps : Blackwell {
  static constexpr std::string_view kName = "CausalFourSteps";
  static constexpr KernelConfig kValue{
      .cluster_size = 1, .max_extra_steps = 4, .key_stages = 3, .value_stages = 3, .causal = true};
};

// Values of the CMake option OPENVC_KERNEL_SET, kernels in the order in which a launch tries them.
// Each set serves every call; the small one compiles sooner and runs slower.
namespace kernel_sets {
using all = KernelSet<Dense, DenseTwoSteps, DenseFourSteps, CausalFourSteps>;
using ci = KernelSet<DenseFourSteps, CausalFourSteps>;
}  // namespace kernel_sets

}  // namespace openvc::cuda::sm100
