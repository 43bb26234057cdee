// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/host/environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/host/device.hpp"

namespace openvc::cuda {
namespace {

using testing::MatchesRegex;

// Field case F07: a driver that is too old, or missing, is named before the first call fails.
TEST(Environment, HasDevicesOrAProblem) {
  const Environment found = environment();
  EXPECT_THAT(found.runtime, MatchesRegex("[0-9]+\\.[0-9]+"));
  EXPECT_EQ(found.problem.empty(), device_count() > 0) << found.problem;
  EXPECT_THAT(found.driver, MatchesRegex(found.problem.empty() ? "[0-9]+\\.[0-9]+" : ".*"));
}

}  // namespace
}  // namespace openvc::cuda
