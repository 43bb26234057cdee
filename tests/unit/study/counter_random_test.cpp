// SPDX-License-Identifier: BSD-3-Clause
#include "study/counter_random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

namespace openvc::study {
namespace {

TEST(Philox, PublishedKnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({~0u, ~0u, ~0u, ~0u}, ~std::uint64_t{0}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0'a4093822u),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PortableMath, AgreesWithTheStandardLibrary) {
  for (double x = 1e-10; x < 1e6; x *= 1.7) {
    EXPECT_NEAR(portable_log(x), std::log(x), 4e-15 * std::max(1.0, std::abs(std::log(x)))) << x;
  }
  for (double turns = -3.0; turns < 3.0; turns += 0.0137) {
    const auto [cosine, sine] = portable_cosine_sine(turns);
    EXPECT_NEAR(cosine, std::cos(2 * std::numbers::pi * turns), 1e-14) << turns;
    EXPECT_NEAR(sine, std::sin(2 * std::numbers::pi * turns), 1e-14) << turns;
  }
}

TEST(CounterRandom, NormalDeviatesHaveTheMomentsOfTheNormalDistribution) {
  std::vector<float> row(1 << 16);
  CounterRandom(3, 5).fill_normal(7, row);
  double sum = 0.0;
  double squares = 0.0;
  double fourths = 0.0;
  for (const float x : row) {
    sum += x;
    squares += static_cast<double>(x) * x;
    fourths += std::pow(static_cast<double>(x), 4);
  }
  const auto n = static_cast<double>(row.size());
  EXPECT_NEAR(sum / n, 0.0, 0.02);
  EXPECT_NEAR(squares / n, 1.0, 0.03);
  EXPECT_NEAR(fourths / n, 3.0, 0.2);
}

TEST(CounterRandom, StreamsSeedsRowsAndKindsOfDrawAreUnrelated) {
  std::array<float, 4> first{};
  CounterRandom(1, 1).fill_normal(1, first);
  const auto differs = [&](std::uint64_t seed, std::uint32_t stream, std::uint64_t row) {
    std::array<float, 4> other{};
    CounterRandom(seed, stream).fill_normal(row, other);
    return other != first;
  };
  EXPECT_FALSE(differs(1, 1, 1));
  EXPECT_TRUE(differs(2, 1, 1));
  EXPECT_TRUE(differs(1, 2, 1));
  EXPECT_TRUE(differs(1, 1, 2));
  EXPECT_NE(CounterRandom(1, 1).normal(1), static_cast<double>(first[0]));
  const double uniform = CounterRandom(1, 1).uniform(1);
  EXPECT_GE(uniform, 0.0);
  EXPECT_LT(uniform, 1.0);
}

}  // namespace
}  // namespace openvc::study
