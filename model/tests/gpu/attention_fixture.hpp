// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "cuda/host/device.hpp"
#include "cuda/sm100/launch.hpp"
#include "gpu/agreement.hpp"
#include "gpu/attention_pair.hpp"
#include "kernel_names.hpp"
#include "machine/machine.hpp"

namespace openvc::test {

/// Orders in which threads and engines may work: results must not depend on them.
inline constexpr model::Schedule kSchedules[] = {
    {0, model::Turns::in_order, model::Engines::eager},
    {1, model::Turns::random, model::Engines::lazy},
    {2, model::Turns::one_warp_last, model::Engines::random},
    {3, model::Turns::one_block_first, model::Engines::random},
};

inline constexpr AttentionKernel kBlackwell{"Blackwell", cuda::sm100::kPackedFormat,
                                            cuda::sm100::launch};
inline constexpr const AttentionKernel* kSmallKernels[] = {&kHopper, &kBlackwell, &kAda};

/// Attention kernels on the model of the machine; Hopper's where a case does not say another.
class Sm90Test : public testing::Test {
 protected:
  void SetUp() override { name_attention_kernels(); }
  void TearDown() override { model::set_schedule({}); }

  /// Runs prepared inputs by every schedule: one result, guards, every element written.
  static AttentionResult device_result(const AttentionCase& c, const HostPrepared& host) {
    const DevicePrepared device(host);
    AttentionResult result;
    std::vector<std::byte> expected;
    for (const model::Schedule& schedule : kSchedules) {
      // Only Hopper's blocks run two at a time.
      if (schedule.turns == model::Turns::one_block_first && c.kernel != &kHopper) continue;
      SCOPED_TRACE(schedule.describe());
      model::set_schedule(schedule);
      DeviceOutput out(c.problem, c.type);
      try {
        run_on_device(device.view(), out, true, nullptr, *c.kernel);
      } catch (const model::Fault& fault) {
        ADD_FAILURE() << fault.what();
        continue;
      }
      EXPECT_EQ(out.fault(true), "");
      EXPECT_TRUE(device.guards_untouched());
      if (expected.empty()) {
        expected = out.bytes();
        result = out.read();
      }
      EXPECT_TRUE(out.bytes() == expected) << "the result depends on the schedule";
    }
    return result;
  }

  static void expect_agreement(const AttentionCase& c, const study::Tensors& tensors,
                               const Bounds& bounds = {}) {
    SCOPED_TRACE(c.describe());
    const HostPrepared host(c, tensors);
    EXPECT_EQ(disagreement(c.seen(), device_result(c, host), run_on_cpu(host, c.type), bounds), "");
  }

  static void expect_agreement(const AttentionCase& c, const Bounds& bounds = {}) {
    expect_agreement(c, make_tensors(c), bounds);
  }
};

}  // namespace openvc::test
