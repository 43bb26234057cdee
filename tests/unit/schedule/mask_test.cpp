// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/mask.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace openvc::schedule {
namespace {

using numerics::kKeyBlock;
using numerics::kQueryBlock;

Problem make_problem(std::int64_t queries, std::int64_t keys, Mask mask) {
  Problem problem;
  problem.queries = queries;
  problem.keys = keys;
  problem.mask = mask;
  return problem;
}

/// The definition: the last query sees all keys, each earlier query one less.
bool defined_visible(const Problem& p, std::int64_t query, std::int64_t key) {
  if (p.mask == Mask::none) return true;
  const std::int64_t queries_after = p.queries - 1 - query;
  const std::int64_t keys_after = p.keys - 1 - key;
  return keys_after >= queries_after;
}

TEST(Mask, VisibilityByDefinition) {
  for (const Mask mask : {Mask::none, Mask::causal}) {
    for (std::int64_t queries = 1; queries <= 12; ++queries) {
      for (std::int64_t keys = 1; keys <= 12; ++keys) {
        const Problem p = make_problem(queries, keys, mask);
        for (std::int64_t query = 0; query < queries; ++query) {
          std::int64_t count = 0;
          for (std::int64_t key = 0; key < keys; ++key) {
            ASSERT_EQ(key < visible_keys(p, query), defined_visible(p, query, key))
                << queries << 'x' << keys << ' ' << query << ',' << key;
            count += defined_visible(p, query, key) ? 1 : 0;
          }
          ASSERT_EQ(visible_keys(p, query), count);
        }
      }
    }
  }
}

TEST(Mask, CausalCorners) {
  EXPECT_EQ(visible_keys(make_problem(1, 1, Mask::causal), 0), 1);
  EXPECT_EQ(visible_keys(make_problem(1, 1000, Mask::causal), 0), 1000) << "decoding";
  EXPECT_EQ(visible_keys(make_problem(10, 4, Mask::causal), 5), 0) << "fewer keys than queries";
  EXPECT_EQ(visible_keys(make_problem(10, 4, Mask::causal), 6), 1);
  EXPECT_EQ(visible_keys(make_problem(10, 4, Mask::causal), 9), 4);
  EXPECT_EQ(visible_keys(make_problem(4, 10, Mask::causal), 0), 7);
  constexpr std::int64_t kLong = std::int64_t{3} << 32;
  EXPECT_EQ(visible_keys(make_problem(kLong, kLong, Mask::causal), kLong - 2), kLong - 1);
  EXPECT_EQ(visible_keys(make_problem(5, 0, Mask::none), 3), 0);
  EXPECT_EQ(visible_keys(make_problem(5, 0, Mask::causal), 4), 0);
}

TileClass defined_class(const Problem& p, std::int64_t first_query, std::int64_t last_query,
                        std::int64_t key_block) {
  bool any = false;
  bool all = true;
  for (std::int64_t query = first_query; query <= last_query; ++query) {
    for (std::int64_t key = key_block * kKeyBlock; key < (key_block + 1) * kKeyBlock; ++key) {
      const bool visible = key < p.keys && defined_visible(p, query, key);
      any = any || visible;
      all = all && visible;
    }
  }
  return all ? TileClass::full : (any ? TileClass::partial : TileClass::empty);
}

TEST(TileClass, AgreesWithEveryElement) {
  for (const Mask mask : {Mask::none, Mask::causal}) {
    for (const std::int64_t queries : {1, 100, 255, 256, 257, 700}) {
      for (const std::int64_t keys : {1, 127, 128, 129, 384, 650}) {
        const Problem p = make_problem(queries, keys, mask);
        // The rows of a query block, of a kernel's 64-row slice, and single rows.
        for (const std::int64_t rows :
             {std::int64_t{kQueryBlock}, std::int64_t{64}, std::int64_t{37}}) {
          for (std::int64_t first = 0; first < queries; first += rows) {
            const std::int64_t last = std::min(first + rows, queries) - 1;
            for (std::int64_t block = 0; block < p.key_blocks(); ++block) {
              ASSERT_EQ(tile_class(p, first, last, block), defined_class(p, first, last, block))
                  << queries << 'x' << keys << " rows " << first << ".." << last << " block "
                  << block;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace openvc::schedule
