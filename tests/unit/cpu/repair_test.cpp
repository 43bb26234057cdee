// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/repair.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "numerics/repair.hpp"

namespace openvc::cpu {
namespace {

using Tokens = std::vector<std::int64_t>;

TEST(SelectRepairTokens, TakesTheLargestInAscendingOrder) {
  const std::vector<float> scores{1.0f, 9.0f, 3.0f, 7.0f, 5.0f};
  EXPECT_EQ(select_repair_tokens(scores, 3), (Tokens{1, 3, 4}));
  EXPECT_EQ(select_repair_tokens(scores, 0), Tokens{});
  EXPECT_EQ(select_repair_tokens(scores, 5), (Tokens{0, 1, 2, 3, 4}));
}

TEST(SelectRepairTokens, TiesGoToTheLowerIndex) {
  std::vector<float> scores(1000, 2.0f);
  scores[700] = 3.0f;
  EXPECT_EQ(select_repair_tokens(scores, 4), (Tokens{0, 1, 2, 700}));
}

TEST(SelectRepairTokens, NonFiniteScoresAreOrdered) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(select_repair_tokens(std::vector<float>{nan, inf, 1.0f, nan}, 3), (Tokens{0, 1, 3}));
  // Neither sign nor payload of a NaN counts.
  const float other_nan = numerics::float_from_bits(0xFFC0'1234u);
  EXPECT_EQ(select_repair_tokens(std::vector<float>{inf, nan, other_nan, nan}, 2), (Tokens{1, 2}));
  EXPECT_EQ(select_repair_tokens(std::vector<float>{inf, other_nan, nan, other_nan}, 2),
            (Tokens{1, 2}));
}

TEST(RepairRowCount, RoundsHalfToEven) {
  EXPECT_EQ(numerics::repair_row_count(0.5, 1), 0);
  EXPECT_EQ(numerics::repair_row_count(0.5, 3), 2);
  EXPECT_EQ(numerics::repair_row_count(0.001, 499), 0);
  EXPECT_EQ(numerics::repair_row_count(0.001, 501), 1);
  EXPECT_EQ(numerics::repair_row_count(0.9999, 10), 10);
  EXPECT_EQ(numerics::repair_row_count(0.25, std::int64_t{1} << 40), std::int64_t{1} << 38);
}

}  // namespace
}  // namespace openvc::cpu
