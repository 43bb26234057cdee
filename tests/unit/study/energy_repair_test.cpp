// SPDX-License-Identifier: BSD-3-Clause
#include "study/energy_repair.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace openvc::study {
namespace {

constexpr std::size_t kChannels = 128;

/// Four tokens on a grid of steps of one; what lies between was rounded away.
struct Example {
  DecodedHead head;
  std::vector<float> values;
};

Example example(const std::vector<float>& residuals) {
  Example e;
  e.head.columns = 2;
  e.head.value_scales.fill(0.5f);
  e.head.value_means.fill(1.0f);
  for (std::size_t token = 0; token < residuals.size(); ++token) {
    e.head.keys.insert(e.head.keys.end(), {static_cast<float>(token), -1.0f});
    for (std::size_t c = 0; c < kChannels; ++c) {
      e.head.values.push_back(4.0f);
      e.values.push_back(4.0f * 0.5f + 1.0f + (c == 5 ? residuals[token] : 0.0f));
    }
  }
  return e;
}

TEST(RepairByEnergy, TakesTheTokensThatLostMost) {
  const Example e = example({0.1f, -0.75f, 0.5f, 0.0f});
  const RepairRows repair = repair_by_energy(e.head, e.values, 2);
  ASSERT_EQ(repair.count, 2);
  EXPECT_EQ(repair.keys, (std::vector<float>{1.0f, -1.0f, 2.0f, -1.0f}));
  EXPECT_EQ(repair.values[5], -1.5f);  // in steps of the scale
  EXPECT_EQ(repair.values[kChannels + 5], 1.0f);
  EXPECT_EQ(repair.values[6], 0.0f);
}

TEST(RepairByEnergy, TiesGoToTheLowerIndex) {
  const Example e = example({0.5f, -0.5f, 0.5f});
  const RepairRows repair = repair_by_energy(e.head, e.values, 2);
  EXPECT_EQ(repair.keys, (std::vector<float>{0.0f, -1.0f, 1.0f, -1.0f}));
}

TEST(RepairByEnergy, ConstantChannelsHaveNoResidual) {
  Example e = example({0.5f});
  e.head.value_scales.fill(0.0f);
  e.head.value_means.fill(3.0f);
  const RepairRows repair = repair_by_energy(e.head, e.values, 1);
  for (const float x : repair.values) EXPECT_EQ(x, 0.0f);
}

}  // namespace
}  // namespace openvc::study
