// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/traversal.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace openvc::schedule {
namespace {

using numerics::kKeyBlock;
using numerics::kMidWindowBlocks;
using numerics::kQueryBlock;

const std::int64_t kLengths[] = {1,   2,   127, 128,  129,  255,  256,  257,   511,
                                 512, 513, 700, 1000, 1024, 1025, 4097, 10000, 33333};

template <class Visit>
void for_all_problems(const Visit& visit) {
  for (const Mask mask : {Mask::none, Mask::causal}) {
    for (const KeyOrder order : {KeyOrder::mid_window, KeyOrder::descending}) {
      for (const std::int64_t queries : kLengths) {
        for (const std::int64_t keys : kLengths) {
          Problem p;
          p.queries = queries;
          p.keys = keys;
          p.mask = mask;
          p.key_order = order;
          visit(p);
        }
      }
    }
  }
}

std::int64_t last_query_of(const Problem& p, std::int64_t query_block) {
  return std::min((query_block + 1) * kQueryBlock, p.queries) - 1;
}

TEST(Traversal, VisitsEachBlockWithAVisibleKeyOnce) {
  for_all_problems([](const Problem& p) {
    for (std::int64_t q = 0; q < p.query_blocks(); ++q) {
      const Traversal walk = traversal(p, q);
      std::vector<int> visits(static_cast<std::size_t>(p.key_blocks()), 0);
      for (std::int64_t step = 0; step < walk.blocks; ++step) {
        const std::int64_t block = walk.block(step);
        ASSERT_GE(block, 0);
        ASSERT_LT(block, p.key_blocks());
        ++visits[static_cast<std::size_t>(block)];
      }
      const std::int64_t first_query = q * kQueryBlock;
      for (std::int64_t block = 0; block < p.key_blocks(); ++block) {
        const bool needed =
            tile_class(p, first_query, last_query_of(p, q), block) != TileClass::empty;
        ASSERT_EQ(visits[static_cast<std::size_t>(block)], needed ? 1 : 0)
            << p.queries << 'x' << p.keys << " query block " << q << " key block " << block;
      }
    }
  });
}

TEST(Traversal, GoesDownFromTheStartAndThenDownFromTheEnd) {
  for_all_problems([](const Problem& p) {
    for (std::int64_t q = 0; q < p.query_blocks(); ++q) {
      const Traversal walk = traversal(p, q);
      if (walk.blocks == 0) continue;
      EXPECT_EQ(walk.block(0), walk.first);
      int rises = 0;
      for (std::int64_t step = 1; step < walk.blocks; ++step) {
        if (walk.block(step) == walk.block(step - 1) - 1) continue;
        ++rises;
        EXPECT_EQ(walk.block(step - 1), 0);
        EXPECT_EQ(walk.block(step), walk.blocks - 1);
      }
      EXPECT_LE(rises, 1);
      if (p.mask == Mask::causal || p.key_order == KeyOrder::descending) {
        EXPECT_EQ(rises, 0);
        EXPECT_EQ(walk.first, walk.blocks - 1);
      }
    }
  });
}

TEST(Traversal, MidWindowStartsRightOfTheOwnPosition) {
  Problem p;
  p.queries = 75600;
  p.keys = 75600;
  for (std::int64_t q = 0; q < p.query_blocks(); ++q) {
    const std::int64_t own = q * kQueryBlock / kKeyBlock;
    const std::int64_t first = traversal(p, q).first;
    // The own position is rounded to blocks of both sizes.
    EXPECT_GE(first, std::min(own - 1 + kMidWindowBlocks, p.key_blocks() - 1)) << q;
    EXPECT_LE(first, std::min(own + 1 + kMidWindowBlocks, p.key_blocks() - 1)) << q;
  }
}

TEST(Traversal, RowsWithoutKeysVisitNothing) {
  Problem p;
  p.queries = 1000;
  p.keys = 100;
  p.mask = Mask::causal;
  EXPECT_EQ(traversal(p, 0).blocks, 0);
  EXPECT_EQ(traversal(p, 3).blocks, 1);
  p.keys = 0;
  p.mask = Mask::none;
  EXPECT_EQ(traversal(p, 0).blocks, 0);
}

TEST(TileSequence, IsTheTraversalAndThenEveryRepairBlock) {
  for_all_problems([](Problem p) {
    for (const std::int64_t repair_rows : {0, 1, 128, 300}) {
      p.repair_rows = repair_rows;
      for (std::int64_t q = 0; q < p.query_blocks(); ++q) {
        const Traversal walk = traversal(p, q);
        const TileSequence tiles = tile_sequence(p, q);
        if (walk.blocks == 0) {  // queries without keys have nothing to repair
          ASSERT_EQ(tiles.count, 0);
          continue;
        }
        ASSERT_EQ(tiles.count, walk.blocks + p.repair_blocks());
        for (int step = 0; step < tiles.count; ++step) {
          const bool repair = step >= walk.blocks;
          ASSERT_EQ(tiles.is_repair(step), repair);
          ASSERT_EQ(tiles.block(step),
                    repair ? p.key_blocks() + step - walk.blocks : walk.block(step));
        }
      }
    }
  });
}

TEST(Traversal, LongSequences) {
  Problem p;
  p.queries = std::int64_t{1} << 33;
  p.keys = (std::int64_t{1} << 33) + 5;
  const std::int64_t last_block = p.query_blocks() - 1;
  const Traversal walk = traversal(p, last_block);
  EXPECT_EQ(walk.blocks, (std::int64_t{1} << 26) + 1);
  EXPECT_EQ(walk.block(walk.blocks - 1), walk.first + 1 < walk.blocks ? walk.first + 1 : 0);
  EXPECT_GT(walk.first, (std::int64_t{1} << 26) - 8);
}

}  // namespace
}  // namespace openvc::schedule
