// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/attention/arguments.hpp"
#include "cuda/sm90/config.hpp"
#include "cuda/sm90/kernel_table.hpp"
#include "gpu/attention_fixture.hpp"

// A configuration of the kernel changes no result: the same prepared inputs through every kernel of
// this build that can serve them leave the same bytes.
namespace openvc::test {
namespace {

class Sm90Configurations : public Sm90Test {
 protected:
  /// Compares all kernels; returns how many served the problem.
  static int expect_equal_bytes(const AttentionCase& c) {
    SCOPED_TRACE(c.describe());
    const HostPrepared host(c, make_tensors(c));
    const DevicePrepared device(host);
    DeviceOutput out(c.problem, c.type);
    run_on_device(device.view(), out);
    const std::vector<std::byte> expected = out.bytes();
    int served = 0;
    for (const cuda::Kernel& kernel : cuda::sm90::kernels()) {
      if (!can_serve(kernel.config, c.problem.mask, c.numerics.max_extra_steps)) continue;
      ++served;
      out.clear();
      kernel.launch(cuda::make_parameters({device.view(), out.view(), out.log_sum_exp()},
                                          cuda::sm90::kTileShape),
                    cuda::device_info(0), nullptr);
      cuda::check(cudaDeviceSynchronize(), "running a configuration");
      EXPECT_EQ(out.fault(true), "") << kernel.name;
      EXPECT_TRUE(out.bytes() == expected) << kernel.name << " gives other bytes";
    }
    return served;
  }

  /// All kinds of heads and problems, with up to `steps` residual k-steps that are all spent.
  static int expect_equal_bytes(Mask mask, int steps) {
    int fewest = static_cast<int>(cuda::sm90::kernels().size());
    const auto expect = [&](const AttentionCase& c) {
      fewest = std::min(fewest, expect_equal_bytes(c));
    };
    for (const float gain : {1.0f, 30.0f, 3000.0f}) {  // narrow; wide, of exponent 0 and above
      for (const std::int64_t keys : {1, 128, 300, 1000, 2100}) {
        AttentionCase c = make_case(1, 3, 1000, keys, mask);
        c.numerics.rotation = Choice::never;
        c.numerics.max_extra_steps = steps;
        c.numerics.score_error_target = 0.0f;
        c.softmax_scale *= gain;
        expect(c);
      }
    }
    AttentionCase c = make_case(2, 5, 2100, 4200, mask);
    c.numerics.max_extra_steps = steps;
    c.problem.key_order = KeyOrder::descending;
    expect(c);
    return fewest;
  }
};

TEST_F(Sm90Configurations, DenseKernelsGiveEqualBytes) {
  int compared = 0;
  for (const int steps : {0, 1, 2, 4}) compared += expect_equal_bytes(Mask::none, steps);
  EXPECT_GE(compared, 4);
}

TEST_F(Sm90Configurations, CausalKernelsGiveEqualBytes) {
  int compared = 0;
  for (const int steps : {0, 1, 2, 4}) compared += expect_equal_bytes(Mask::causal, steps);
  EXPECT_GE(compared, 4);
}

// With all kernels built, heads without residual columns run in every dense kernel.
TEST_F(Sm90Configurations, SeveralKernelsServeCallsWithoutSteps) {
  if (cuda::sm90::kernels().size() < 5) GTEST_SKIP() << "OPENVC_KERNEL_SET leaves kernels out";
  EXPECT_EQ(expect_equal_bytes(Mask::none, 0), 3);
  EXPECT_EQ(expect_equal_bytes(Mask::none, 2), 2);
  EXPECT_EQ(expect_equal_bytes(Mask::causal, 0), 2);
}

}  // namespace
}  // namespace openvc::test
