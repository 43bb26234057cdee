// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/prepared_layout.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace openvc::schedule {
namespace {

constexpr PackedFormat kFormat{.query_tile = 256, .ones_rows = 1};

struct Section {
  std::string name;
  std::uint64_t start;
  std::uint64_t bytes;
};

/// The sections with the sizes that their comments promise.
std::vector<Section> sections(const Problem& p, int steps, bool with_log_sum_exp,
                              bool with_value_axes) {
  const PreparedLayout layout =
      prepared_layout(p, steps, with_log_sum_exp, kFormat, with_value_axes);
  const auto bh = static_cast<std::uint64_t>(p.batch * p.heads);
  const auto query_rows = bh * static_cast<std::uint64_t>((p.queries + 255) / 256 * 256);
  const auto key_rows = bh * static_cast<std::uint64_t>(p.padded_keys());
  const auto planes = static_cast<std::uint64_t>(steps);
  return {{"query_codes", layout.query_codes, query_rows * 128},
          {"key_codes", layout.key_codes, key_rows * 128},
          {"value_codes", layout.value_codes, key_rows * (128 + 7 + 1)},
          {"query_columns", layout.query_columns, planes * query_rows * 32},
          {"key_columns", layout.key_columns, planes * key_rows * 32},
          {"head_rules", layout.head_rules, bh * 4},
          {"value_scales", layout.value_scales, bh * 128 * 4},
          {"value_means", layout.value_means, bh * 128 * 4},
          {"value_bases", layout.value_bases, with_value_axes ? bh * 2 * 128 * 136 : 0},
          {"smoothing_shifts", layout.smoothing_shifts,
           with_log_sum_exp ? bh * static_cast<std::uint64_t>(p.queries) * 4 : 0}};
}

void check(const Problem& p, int steps, bool with_log_sum_exp, bool with_value_axes = false) {
  std::vector<Section> all = sections(p, steps, with_log_sum_exp, with_value_axes);
  const std::uint64_t end =
      prepared_layout(p, steps, with_log_sum_exp, kFormat, with_value_axes).bytes;
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
              check(p, steps, true, true);
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
  const PreparedLayout layout = prepared_layout(p, 4, true, kFormat);
  EXPECT_GT(layout.key_codes, std::uint64_t{1} << 32);
  EXPECT_GT(layout.value_codes - layout.key_codes, std::uint64_t{1} << 32);
  // 112 heads of 400,128 padded queries and 500,096 + 5,120 padded key rows.
  EXPECT_EQ(layout.query_rows, 400'128);
  EXPECT_EQ(p.padded_keys(), 505'216);
  EXPECT_EQ(layout.key_codes, std::uint64_t{112} * 400'128 * 128);
  EXPECT_EQ(layout.value_codes, layout.key_codes + std::uint64_t{112} * 505'216 * 128);
  EXPECT_EQ(layout.query_columns, layout.value_codes + std::uint64_t{112} * 505'216 * 136);
}

TEST(PreparedLayout, ValueCodesFillTheirSectionOnce) {
  Problem p;
  p.batch = 2;
  p.heads = 3;
  p.keys = 200;
  p.repair_rows = 5;
  for (const int ones_rows : {1, 9}) {
    const PreparedLayout layout = prepared_layout(p, 1, false, {256, ones_rows});
    const int rows = 128 + 7 + ones_rows;
    ASSERT_EQ(layout.value_rows(), rows);
    const std::int64_t size = p.batch_heads() * p.padded_keys() * rows;
    std::vector<int> visits(static_cast<std::size_t>(size), 0);
    for (std::int64_t bh = 0; bh < p.batch_heads(); ++bh) {
      for (int row = 0; row < rows; ++row) {
        for (std::int64_t key = 0; key < p.padded_keys(); ++key) {
          const std::size_t offset = layout.value_code_at(bh, row, key) - layout.value_codes;
          ASSERT_LT(offset, visits.size());
          ++visits[offset];
          // A block of 128 keys is contiguous, rows of 128 bytes, keys permuted inside their
          // sixteen.
          const std::size_t block = layout.value_block_at(bh, key / 128) - layout.value_codes;
          ASSERT_EQ(block % kSectionAlignment, 0u);
          ASSERT_EQ((offset - block) / 128, static_cast<std::size_t>(row));
          ASSERT_EQ((offset - block) % 128 / 16, static_cast<std::size_t>(key % 128 / 16));
          ASSERT_EQ(numerics::key_of_slot(static_cast<int>((offset - block) % 128)), key % 128);
        }
      }
    }
    EXPECT_EQ(std::count(visits.begin(), visits.end(), 1), size);
  }
}

/// Addresses against the shapes that the comments of the sections promise.
TEST(PreparedLayout, AddressesFollowTheShapes) {
  Problem p;
  p.batch = 2;
  p.heads = 3;
  p.queries = 300;
  p.keys = 200;
  p.repair_rows = 5;
  for (const int query_tile : {128, 256}) {
    const PreparedLayout l = prepared_layout(p, 4, true, {query_tile, 1});
    const std::size_t queries = query_tile == 128 ? 384 : 512;
    const std::size_t keys = 256 + 128;
    ASSERT_EQ(static_cast<std::size_t>(l.query_rows), queries);
    for (const std::int64_t bh : {0, 1, 5}) {
      const auto head = static_cast<std::size_t>(bh);
      EXPECT_EQ(l.query_at(bh, 299), l.query_codes + (head * queries + 299) * 128);
      EXPECT_EQ(l.key_at(bh, 260), l.key_codes + (head * keys + 260) * 128);
      EXPECT_EQ(l.query_columns_at(3, bh, 7), l.query_columns + ((18 + head) * queries + 7) * 32);
      EXPECT_EQ(l.key_columns_at(2, bh, 7), l.key_columns + ((12 + head) * keys + 7) * 32);
      EXPECT_EQ(l.value_block_at(bh, 2), l.value_codes + (head * 3 + 2) * 136 * 128);
      EXPECT_EQ(l.head_rule_at(bh), l.head_rules + head * 4);
      EXPECT_EQ(l.value_scales_at(bh), l.value_scales + head * 512);
      EXPECT_EQ(l.value_means_at(bh), l.value_means + head * 512);
      EXPECT_EQ(l.smoothing_shift_at(bh, 9), l.smoothing_shifts + (head * 300 + 9) * 4);
    }
  }
}

TEST(PreparedLayout, ValueCodesBeyondFourGibibytes) {
  Problem p;
  p.heads = 56;
  p.keys = 1'000'000;
  const PreparedLayout layout = prepared_layout(p, 0, false, kFormat);
  EXPECT_EQ(layout.value_code_at(55, 135, p.padded_keys() - 1) - layout.value_codes,
            static_cast<std::uint64_t>(56 * p.padded_keys() * 136 - 1));
}

TEST(Problem, PaddingToBlocks) {
  Problem p;
  p.queries = 1;
  p.keys = 1;
  EXPECT_EQ(p.padded_keys(), numerics::kKeyBlock);
  p.queries = 2 * numerics::kQueryBlock;
  p.keys = 3 * numerics::kKeyBlock;
  EXPECT_EQ(p.query_blocks(), 2);
  EXPECT_EQ(p.key_blocks(), 3);
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
