// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "cuda/attention/arguments.hpp"
#include "cuda/sm90/launch_kernel.cuh"
#include "gpu/attention_fixture.hpp"

// Configurations that are not shipped: a block for itself, and the shortest rings. No configuration
// changes a result.
namespace openvc::test {
namespace {

struct SingleBlocks : cuda::sm90::Hopper {
  static constexpr std::string_view kName = "SingleBlocks";
  static constexpr cuda::KernelConfig kValue{.cluster_size = 1, .key_stages = 3, .value_stages = 2};
};

class ModelConfiguration : public Sm90Test {};

TEST_F(ModelConfiguration, BlocksAloneGiveTheSameBytes) {
  AttentionCase c = make_case(1, 2, 300, 700);
  c.numerics.max_extra_steps = 0;
  const HostPrepared host(c, make_tensors(c));
  const DevicePrepared device(host);
  DeviceOutput out(c.problem, c.type);
  run_on_device(device.view(), out);
  const std::vector<std::byte> expected = out.bytes();
  for (const model::Schedule& schedule : kSchedules) {
    SCOPED_TRACE(schedule.describe());
    model::set_schedule(schedule);
    out.clear();
    cuda::sm90::launch_kernel<SingleBlocks>(
        cuda::make_parameters({device.view(), out.view(), out.log_sum_exp()},
                              cuda::sm90::kTileShape),
        cuda::device_info(0), nullptr);
    EXPECT_TRUE(out.bytes() == expected);
  }
}

}  // namespace
}  // namespace openvc::test
