// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string_view>

#include "cuda/attention/kernel_table.hpp"
#include "numerics/contract.hpp"

// What is true of the kernels of every architecture, whatever set of them was built.
namespace openvc::cuda::test {

inline void expect_every_call_is_served(std::span<const Kernel> kernels) {
  for (const Mask mask : {Mask::none, Mask::causal}) {
    for (int steps = 0; steps <= numerics::kMaxExtraSteps; ++steps) {
      const Kernel* kernel = find_kernel(kernels, mask, steps);
      ASSERT_NE(kernel, nullptr) << "causal " << (mask == Mask::causal) << ", steps " << steps;
      EXPECT_GE(kernel->config.max_extra_steps, steps);
      EXPECT_EQ(kernel->config.causal, mask == Mask::causal) << kernel->name;
    }
  }
  EXPECT_EQ(find_kernel(kernels, Mask::none, numerics::kMaxExtraSteps + 1), nullptr);
}

/// A kernel behind one that can do the same with longer rings would never run.
inline void expect_every_kernel_serves_some_call(std::span<const Kernel> kernels) {
  std::set<std::string_view> used;
  for (const Mask mask : {Mask::none, Mask::causal}) {
    for (int steps = 0; steps <= numerics::kMaxExtraSteps; ++steps) {
      used.insert(find_kernel(kernels, mask, steps)->name);
    }
  }
  EXPECT_EQ(used.size(), kernels.size());
}

}  // namespace openvc::cuda::test
