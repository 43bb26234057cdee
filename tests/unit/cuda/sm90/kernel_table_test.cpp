// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/sm90/kernel_table.hpp"

#include <gtest/gtest.h>

#include "unit/cuda/kernel_table_properties.hpp"

namespace openvc::cuda::sm90 {
namespace {

TEST(KernelTable, EveryCallIsServed) { test::expect_every_call_is_served(kernels()); }

TEST(KernelTable, EveryKernelServesSomeCall) {
  test::expect_every_kernel_serves_some_call(kernels());
}

TEST(KernelTable, AKernelServesItsMaskAndWhatItHasRoomFor) {
  constexpr KernelConfig kDense{.max_extra_steps = 2};
  EXPECT_TRUE(can_serve(kDense, Mask::none, 0));
  EXPECT_TRUE(can_serve(kDense, Mask::none, 2));
  EXPECT_FALSE(can_serve(kDense, Mask::none, 4));
  EXPECT_FALSE(can_serve(kDense, Mask::causal, 0));
  constexpr KernelConfig kCausal{.causal = true};
  EXPECT_TRUE(can_serve(kCausal, Mask::causal, 0));
  EXPECT_FALSE(can_serve(kCausal, Mask::none, 0));
  EXPECT_FALSE(can_serve(kCausal, Mask::causal, 1));
  EXPECT_EQ(find_kernel({}, Mask::none, 0), nullptr);
}

}  // namespace
}  // namespace openvc::cuda::sm90
