// SPDX-License-Identifier: BSD-3-Clause
#include "api/cuda_architecture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace openvc::api {
namespace {

constexpr CudaArchitecture kAda{"sm89", {"sm_89", "sm_120a", "sm_121a"}, false, {}, nullptr};
constexpr CudaArchitecture kHopper{"sm90", {"sm_90a"}, true, {}, nullptr};
constexpr CudaArchitecture kBlackwell{"sm100", {"sm_100a", "sm_103a"}, false, {}, nullptr};

// Field cases F03 and F04: an image of an 'a' architecture runs on that very compute capability.
TEST(CudaArchitecture, RunsOnWhatItsImagesAreMadeFor) {
  struct Device {
    ComputeCapability capability;
    bool ada;
    bool hopper;
    bool blackwell;
  };
  constexpr Device kDevices[] = {
      {{7, 5}, false, false, false}, {{8, 0}, false, false, false},  {{8, 9}, true, false, false},
      {{9, 0}, false, true, false},  {{9, 1}, false, false, false},  {{10, 0}, false, false, true},
      {{10, 3}, false, false, true}, {{10, 1}, false, false, false}, {{11, 0}, false, false, false},
      {{12, 0}, true, false, false}, {{12, 1}, true, false, false},  {{0, 0}, false, false, false}};
  for (const Device& device : kDevices) {
    EXPECT_EQ(kAda.runs_on(device.capability), device.ada) << device.capability.text();
    EXPECT_EQ(kHopper.runs_on(device.capability), device.hopper) << device.capability.text();
    EXPECT_EQ(kBlackwell.runs_on(device.capability), device.blackwell) << device.capability.text();
  }
}

TEST(CudaArchitecture, SaysWhatABuildRunsOn) {
  constexpr CudaArchitecture kBoth[] = {kHopper, kBlackwell};
  EXPECT_EQ(supported_capabilities(kBoth), "9.0 (sm90), 10.0 (sm100), 10.3 (sm100)");
  EXPECT_EQ(supported_capabilities({}), "");
  EXPECT_THAT(kBlackwell.image_names(), testing::ElementsAre("sm_100a", "sm_103a"));
  EXPECT_THAT(kHopper.image_names(), testing::ElementsAre("sm_90a"));
}

}  // namespace
}  // namespace openvc::api
