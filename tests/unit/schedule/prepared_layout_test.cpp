// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/prepared_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace openvc::schedule {
namespace {

struct Section {
  std::string name;
  std::uint64_t start;
  std::uint64_t bytes;
};

/// The sections with the sizes that their comments promise.
std::vector<Section> sections(const Problem& p, int steps, bool with_log_sum_exp) {
  const PreparedLayout layout = prepared_layout(p, steps, with_log_sum_exp);
  const auto bh = static_cast<std::uint64_t>(p.batch * p.heads);
  const auto query_rows = bh * static_cast<std::uint64_t>(p.padded_queries());
  const auto key_rows = bh * static_cast<std::uint64_t>(p.padded_keys());
  const auto planes = static_cast<std::uint64_t>(steps);
  return {{"query_codes", layout.query_codes, query_rows * 128},
          {"key_codes", layout.key_codes, key_rows * 128},
          {"value_codes", layout.value_codes, key_rows * 128},
          {"query_columns", layout.query_columns, planes * query_rows * 32},
          {"key_columns", layout.key_columns, planes * key_rows * 32},
          {"head_rules", layout.head_rules, bh * 4},
          {"value_scales", layout.value_scales, bh * 128 * 4},
          {"value_means", layout.value_means, bh * 128 * 4},
          {"smoothing_shifts", layout.smoothing_shifts,
           with_log_sum_exp ? bh * static_cast<std::uint64_t>(p.queries) * 4 : 0}};
}

void check(const Problem& p, int steps, bool with_log_sum_exp) {
  std::vector<Section> all = sections(p, steps, with_log_sum_exp);
  const std::uint64_t end = prepared_layout(p, steps, with_log_sum_exp).bytes;
  std::stable_sort(all.begin(), all.end(), [](const Section& a, const Section& b) {
    return a.start != b.start ? a.start < b.start : a.bytes < b.bytes;
  });
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(all[i].start % kSectionAlignment, 0u) << all[i].name;
    const std::uint64_t next = i + 1 < all.size() ? all[i + 1].start : end;
    ASSERT_LE(all[i].start + all[i].bytes, next) << all[i].name;
    sum += all[i].bytes;
  }
  ASSERT_LE(sum, end);
  ASSERT_LT(end - sum, all.size() * kSectionAlignment) << "no section is larger than it says";
  ASSERT_EQ(end % kSectionAlignment, 0u);
}

TEST(PreparedLayout, SectionsAreDisjointAlignedAndTight) {
  for (const std::int64_t batch : {1, 3}) {
    for (const std::int64_t heads : {1, 7}) {
      for (const std::int64_t queries : {1, 255, 256, 1000}) {
        for (const std::int64_t keys : {1, 128, 777}) {
          for (const std::int64_t repair_rows : {0, 1, 200}) {
            for (const int steps : {0, 1, 2, 4}) {
              Problem p;
              p.batch = batch;
              p.heads = heads;
              p.queries = queries;
              p.keys = keys;
              p.repair_rows = repair_rows;
              check(p, steps, false);
              check(p, steps, true);
            }
          }
        }
      }
    }
  }
}

TEST(PreparedLayout, SectionsBeyondFourGibibytes) {
  Problem p;
  p.batch = 2;
  p.heads = 56;
  p.queries = 400'000;
  p.keys = 500'001;
  p.repair_rows = 5'000;
  check(p, 4, true);
  const PreparedLayout layout = prepared_layout(p, 4, true);
  EXPECT_GT(layout.key_codes, std::uint64_t{1} << 32);
  EXPECT_GT(layout.value_codes - layout.key_codes, std::uint64_t{1} << 32);
  // 112 heads of 400,128 padded queries and 500,096 + 5,120 padded key rows.
  EXPECT_EQ(p.padded_queries(), 400'128);
  EXPECT_EQ(p.padded_keys(), 505'216);
  EXPECT_EQ(layout.key_codes, std::uint64_t{112} * 400'128 * 128);
  EXPECT_EQ(layout.value_codes, layout.key_codes + std::uint64_t{112} * 505'216 * 128);
}

TEST(Problem, PaddingToBlocks) {
  Problem p;
  p.queries = 1;
  p.keys = 1;
  EXPECT_EQ(p.padded_queries(), numerics::kQueryBlock);
  EXPECT_EQ(p.padded_keys(), numerics::kKeyBlock);
  p.queries = 2 * numerics::kQueryBlock;
  p.keys = 3 * numerics::kKeyBlock;
  EXPECT_EQ(p.query_blocks(), 2);
  EXPECT_EQ(p.key_blocks(), 3);
  EXPECT_EQ(p.padded_queries(), p.queries);
  EXPECT_EQ(p.padded_keys(), p.keys);
  p.repair_rows = 1;
  EXPECT_EQ(p.repair_blocks(), 1);
  EXPECT_EQ(p.key_blocks(), 3) << "repair rows stay outside the softmax";
  EXPECT_EQ(p.padded_keys(), 4 * numerics::kKeyBlock);
  p.batch = 3;
  p.heads = 5;
  EXPECT_EQ(p.batch_heads(), 15);
}

}  // namespace
}  // namespace openvc::schedule
