// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/sm89/kernel_table.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "numerics/contract.hpp"

namespace openvc::cuda::sm89 {
namespace {

// Whatever set of kernels was built.
TEST(AdaKernelTable, EveryCallIsServed) {
  for (const Mask mask : {Mask::none, Mask::causal}) {
    for (int steps = 0; steps <= numerics::kMaxExtraSteps; ++steps) {
      const Kernel* kernel = find_kernel(kernels(), mask, steps);
      ASSERT_NE(kernel, nullptr) << "causal " << (mask == Mask::causal) << ", steps " << steps;
      EXPECT_GE(kernel->config.max_extra_steps, steps);
      EXPECT_EQ(kernel->config.causal, mask == Mask::causal) << kernel->name;
    }
  }
}

// A kernel behind one that can do the same with longer rings would never run.
TEST(AdaKernelTable, EveryKernelServesSomeCall) {
  std::set<std::string_view> used;
  for (const Mask mask : {Mask::none, Mask::causal}) {
    for (int steps = 0; steps <= numerics::kMaxExtraSteps; ++steps) {
      used.insert(find_kernel(kernels(), mask, steps)->name);
    }
  }
  EXPECT_EQ(used.size(), kernels().size());
}

TEST(AdaKernelTable, ACallThatNoKernelServesFindsNone) {
  EXPECT_EQ(find_kernel({}, Mask::none, 0), nullptr);
  EXPECT_EQ(find_kernel(kernels(), Mask::none, numerics::kMaxExtraSteps + 1), nullptr);
}

}  // namespace
}  // namespace openvc::cuda::sm89
