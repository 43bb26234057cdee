// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/hadamard.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "unit/numerics/sweep.hpp"

namespace openvc::numerics {
namespace {

using Row = std::vector<float>;

Row transformed(Row row) {
  hadamard(row.data());
  return row;
}

Row random_integers(std::uint64_t seed) {
  testing::Random random(seed);
  Row row(kHeadDim);
  for (float& x : row) x = static_cast<float>(random.below(2001) - 1000);
  return row;
}

double dot(const Row& a, const Row& b) {
  double sum = 0.0;
  for (std::size_t c = 0; c < a.size(); ++c) {
    sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
  }
  return sum;
}

TEST(Hadamard, IsTheSylvesterMatrix) {
  for (unsigned column = 0; column < kHeadDim; ++column) {
    Row unit(kHeadDim, 0.0f);
    unit[column] = 1.0f;
    const Row image = transformed(unit);
    for (unsigned row = 0; row < kHeadDim; ++row) {
      ASSERT_EQ(image[row], std::popcount(row & column) % 2 == 0 ? 1.0f : -1.0f);
    }
  }
}

TEST(Hadamard, TwiceIsTheHeadDimension) {
  const Row row = random_integers(1);
  const Row twice = transformed(transformed(row));
  for (std::size_t c = 0; c < row.size(); ++c) ASSERT_EQ(twice[c], kHeadDim * row[c]) << c;
}

TEST(Hadamard, ScoresOfIntegersAreUnchanged) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Row q = random_integers(2 * seed);
    const Row k = random_integers(2 * seed + 1);
    Row rotated_q = transformed(q);
    Row rotated_k = transformed(k);
    for (float& x : rotated_q) x *= kQueryRotationScale;
    for (float& x : rotated_k) x *= kKeyRotationScale;
    EXPECT_EQ(dot(rotated_q, rotated_k), dot(q, k)) << seed;
  }
}

TEST(Hadamard, SpreadsTheEnergyOfOneChannel) {
  Row row(kHeadDim, 0.0f);
  row[37] = 5.0f;
  for (const float x : transformed(row)) EXPECT_EQ(std::fabs(x), 5.0f);
}

}  // namespace
}  // namespace openvc::numerics
