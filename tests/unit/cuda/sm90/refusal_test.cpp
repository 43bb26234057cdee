// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cuda/sm90/launch.hpp"

namespace openvc::cuda::sm90 {
namespace {

using testing::HasSubstr;

// Field cases F03 and F04: an image of an 'a' architecture runs on that very compute capability.
TEST(Refusal, NamesWhatWasBuiltAndWhatWasFound) {
  EXPECT_EQ(refusal(9, 0), "");
  constexpr int kOthers[][2] = {{7, 5}, {8, 0}, {8, 9}, {9, 1}, {10, 0}, {10, 3}, {12, 0}};
  for (const auto& [major, minor] : kOthers) {
    const std::string reason = refusal(major, minor);
    EXPECT_THAT(reason, HasSubstr("sm_90a"));
    EXPECT_THAT(reason, HasSubstr("9.0"));
    EXPECT_THAT(reason, HasSubstr(std::to_string(major) + "." + std::to_string(minor)));
  }
}

}  // namespace
}  // namespace openvc::cuda::sm90
