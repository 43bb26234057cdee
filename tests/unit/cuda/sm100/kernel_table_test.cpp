// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/sm100/kernel_table.hpp"

#include <gtest/gtest.h>

#include "unit/cuda/kernel_table_properties.hpp"

namespace openvc::cuda::sm100 {
namespace {

TEST(BlackwellKernelTable, EveryCallIsServed) { test::expect_every_call_is_served(kernels()); }

TEST(BlackwellKernelTable, EveryKernelServesSomeCall) {
  test::expect_every_kernel_serves_some_call(kernels());
}

}  // namespace
}  // namespace openvc::cuda::sm100
