// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/canonical_sum.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "unit/numerics/sweep.hpp"

namespace openvc::numerics {
namespace {

/// Balanced binary tree, by halving.
float tree(const std::vector<float>& x, std::size_t first, std::size_t count) {
  if (count == 1) return x[first];
  return tree(x, first, count / 2) + tree(x, first + count / 2, count / 2);
}

/// The order of the sum, by recursion from its last level: sum(x) = sum of the sums of groups.
float recursive_sum(const std::vector<float>& x) {
  if (x.size() == 1) return x[0];
  std::vector<float> sums;
  for (std::size_t first = 0; first < x.size(); first += 128) {
    std::vector<float> lanes(16, 0.0f);
    for (std::size_t lane = 0; lane < 16; ++lane) {
      for (std::size_t i = first + lane; i < std::min(first + 128, x.size()); i += 16) {
        lanes[lane] += x[i];
      }
    }
    sums.push_back(tree(lanes, 0, 16));
  }
  return recursive_sum(sums);
}

float canonical_sum(std::vector<float> x) {
  return sum_tree(static_cast<std::int64_t>(x.size()),
                  [&](std::int64_t i) -> float& { return x[static_cast<std::size_t>(i)]; });
}

/// A block of 16 threads: each owns a lane and runs at its own pace.
float group_sum_by_threads(const std::vector<float>& x, testing::Random& random) {
  float lanes[kReductionLanes] = {};
  std::size_t next[kReductionLanes];
  std::iota(std::begin(next), std::end(next), 0u);
  for (std::size_t left = x.size(); left > 0;) {
    const auto lane = static_cast<std::size_t>(random.below(kReductionLanes));
    if (next[lane] >= x.size()) continue;
    lanes[lane] += x[next[lane]];
    next[lane] += kReductionLanes;
    --left;
  }
  // Butterfly: lane i receives the sum of lane i ^ stride, which commutes.
  for (int stride = 1; stride < kReductionLanes; stride *= 2) {
    float received[kReductionLanes];
    for (int i = 0; i < kReductionLanes; ++i) received[i] = lanes[i ^ stride];
    for (int i = 0; i < kReductionLanes; ++i) lanes[i] += received[i];
  }
  return lanes[random.below(kReductionLanes)];
}

std::vector<float> random_values(std::size_t count, std::uint64_t seed) {
  testing::Random random(seed);
  std::vector<float> values(count);
  for (float& x : values)
    x = static_cast<float>(random.normal() * std::exp2(random.uniform(-8, 8)));
  return values;
}

TEST(CanonicalSum, IsTheRecursiveDefinition) {
  for (const std::size_t count :
       {1, 2, 15, 16, 17, 127, 128, 129, 255, 1000, 16384, 16385, 75600, 128 * 128 * 128 + 1}) {
    const std::vector<float> x = random_values(count, count);
    EXPECT_EQ(float_bits(canonical_sum(x)), float_bits(recursive_sum(x))) << count;
  }
}

TEST(CanonicalSum, DoesNotDependOnHowAGroupIsEvaluated) {
  testing::Random random(1);
  for (int count = 1; count <= kReductionGroup; ++count) {
    const std::vector<float> x =
        random_values(static_cast<std::size_t>(count), static_cast<std::uint64_t>(count));
    const float expected = sum_group(count, [&](int i) { return x[static_cast<std::size_t>(i)]; });
    for (int trial = 0; trial < 10; ++trial) {
      ASSERT_EQ(float_bits(group_sum_by_threads(x, random)), float_bits(expected)) << count;
    }
  }
}

TEST(CanonicalSum, DiffersFromOtherOrders) {
  // Otherwise the tests above would show nothing.
  int differs_from_plain = 0;
  int differs_from_reversed = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<float> x = random_values(1000, seed);
    const std::vector<float> reversed(x.rbegin(), x.rend());
    differs_from_plain += canonical_sum(x) != std::accumulate(x.begin(), x.end(), 0.0f);
    differs_from_reversed += canonical_sum(x) != canonical_sum(reversed);
  }
  EXPECT_GT(differs_from_plain, 10);
  EXPECT_GT(differs_from_reversed, 10);
}

TEST(CanonicalSum, IsExactForIntegers) {
  testing::Random random(2);
  for (const std::size_t count : {1, 100, 5000, 100000}) {
    std::vector<float> x(count);
    std::int64_t total = 0;
    for (float& value : x) {
      const std::int64_t integer = random.below(201) - 100;
      value = static_cast<float>(integer);
      total += integer;
    }
    EXPECT_EQ(canonical_sum(x), static_cast<float>(total)) << count;
  }
}

TEST(CanonicalSum, NonFiniteValuesStayVisible) {
  std::vector<float> x = random_values(3000, 3);
  x[2999] = infinity();
  EXPECT_EQ(canonical_sum(x), infinity());
  x[17] = -infinity();
  EXPECT_TRUE(std::isnan(canonical_sum(x)));
  x = random_values(3000, 3);
  x[1500] = quiet_nan();
  EXPECT_TRUE(std::isnan(canonical_sum(x)));
}

TEST(CanonicalSum, SquaresOfAGroupRoundOnce) {
  const std::vector<float> x = random_values(kReductionGroup, 9);
  for (int count = 1; count <= kReductionGroup; ++count) {
    std::vector<float> lanes(16, 0.0f);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
    }
    const auto at = [&](int i) { return x[static_cast<std::size_t>(i)]; };
    ASSERT_EQ(float_bits(sum_squares_group(count, at)), float_bits(tree(lanes, 0, 16))) << count;
  }
}

TEST(CanonicalSum, RowsAddChunksOfEightChannels) {
  const std::vector<float> a = random_values(kHeadDim, 10);
  const std::vector<float> b = random_values(kHeadDim, 11);
  const auto at = [](const std::vector<float>& x) {
    return [&x](int c) { return x[static_cast<std::size_t>(c)]; };
  };
  const auto expected = [](const std::vector<float>& x, const std::vector<float>& y) {
    std::vector<float> chunks(16, 0.0f);
    for (std::size_t c = 0; c < x.size(); ++c) chunks[c / 8] = std::fma(x[c], y[c], chunks[c / 8]);
    return tree(chunks, 0, 16);
  };
  EXPECT_EQ(float_bits(row_dot(at(a), at(b))), float_bits(expected(a, b)));
  EXPECT_EQ(float_bits(row_sum_squares(at(a))), float_bits(expected(a, a)));
}

}  // namespace
}  // namespace openvc::numerics
