// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/sequence_bounds.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace openvc::schedule {
namespace {

TEST(TokenRange, NeverLeavesTheTensor) {
  constexpr std::int64_t kNumbers[] = {std::numeric_limits<std::int32_t>::min(), -1, 0, 3, 5, 6,
                                       std::numeric_limits<std::int32_t>::max()};
  for (const std::int64_t begin : kNumbers) {
    for (const std::int64_t end : kNumbers) {
      for (const std::int64_t most : {0, 2, 5, 100}) {
        const TokenRange range = token_range(begin, end, 5, most);
        EXPECT_GE(range.first, 0);
        EXPECT_GE(range.count, 0);
        EXPECT_LE(range.count, most);
        EXPECT_LE(range.first + range.count, 5) << begin << ' ' << end;
      }
    }
  }
}

TEST(TokenRange, IsWhatTheBoundariesSay) {
  const TokenRange range = token_range(2, 5, 5, 3);
  EXPECT_EQ(range.first, 2);
  EXPECT_EQ(range.count, 3);
}

}  // namespace
}  // namespace openvc::schedule
