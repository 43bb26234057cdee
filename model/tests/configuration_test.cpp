// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "cuda/attention/arguments.hpp"
#include "cuda/sm100/launch_kernel.cuh"
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

struct TwoStages : cuda::sm100::Blackwell {
  static constexpr std::string_view kName = "TwoStages";
  static constexpr cuda::KernelConfig kValue{.cluster_size = 1, .key_stages = 2, .value_stages = 2};
};

struct OneStage : cuda::sm100::Blackwell {
  static constexpr std::string_view kName = "OneStage";
  static constexpr cuda::KernelConfig kValue{.cluster_size = 1, .key_stages = 1, .value_stages = 1};
};

class ModelConfiguration : public Sm90Test {
 protected:
  /// Launches of other configurations, by every schedule, give the bytes of the kernel that ships.
  template <class... Launches>
  static void expect_same_bytes(const AttentionKernel& kernel, const Launches&... launches) {
    // Two items of work for the first block, more tiles than the rings have stages.
    AttentionCase c = make_case(1, 4, 40, 300);
    c.kernel = &kernel;
    c.numerics.max_extra_steps = 0;
    const HostPrepared host(c, make_tensors(c));
    const DevicePrepared device(host);
    DeviceOutput out(c.problem, c.type);
    run_on_device(device.view(), out, true, nullptr, kernel);
    const std::vector<std::byte> expected = out.bytes();
    for (const model::Schedule& schedule : kSchedules) {
      SCOPED_TRACE(schedule.describe());
      model::set_schedule(schedule);
      const auto expect = [&](const auto& launch) {
        out.clear();
        launch(cuda::Arguments{device.view(), out.view(), out.log_sum_exp()});
        EXPECT_TRUE(out.bytes() == expected);
      };
      (expect(launches), ...);
    }
  }
};

TEST_F(ModelConfiguration, HopperBlocksAloneGiveTheSameBytes) {
  expect_same_bytes(kHopper, [](const cuda::Arguments& arguments) {
    cuda::sm90::launch_kernel<SingleBlocks>(
        cuda::make_parameters(arguments, cuda::sm90::kTileShape), cuda::device_info(0), nullptr);
  });
}

template <class Config>
void launch_blackwell(const cuda::Arguments& arguments) {
  cuda::sm100::launch_kernel<Config>(cuda::make_parameters(arguments, cuda::sm100::kTileShape),
                                     cuda::device_info(0), nullptr);
}

TEST_F(ModelConfiguration, BlackwellShortRingsGiveTheSameBytes) {
  expect_same_bytes(kBlackwell, launch_blackwell<TwoStages>, launch_blackwell<OneStage>);
}

}  // namespace
}  // namespace openvc::test
