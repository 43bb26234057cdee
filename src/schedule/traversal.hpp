// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "schedule/mask.hpp"
#include "schedule/problem.hpp"

namespace openvc::schedule {

/// The order in which the queries of one block visit the key blocks: from `first` down to 0, then
/// from the last block down to first + 1.
///
/// Mid-window order starts a few blocks to the right of the query's own position, where attention
/// of a video model is strongest: the reference of a row of wide scores settles early, and the
/// largest terms are added first. Starting at the last block gives the plain descending order.
struct Traversal {
  std::int64_t blocks = 0;  // to visit
  std::int64_t first = 0;

  [[nodiscard]] OPENVC_HD constexpr std::int64_t block(std::int64_t step) const {
    return step <= first ? first - step : blocks - step + first;
  }
};

OPENVC_HD constexpr Traversal traversal(const Problem& p, std::int64_t query_block) {
  const std::int64_t end = (query_block + 1) * numerics::kQueryBlock;
  const std::int64_t last_query = (end < p.queries ? end : p.queries) - 1;
  const std::int64_t blocks = numerics::ceil_div(visible_keys(p, last_query), numerics::kKeyBlock);
  const std::int64_t last = blocks > 0 ? blocks - 1 : 0;
  if (p.key_order == KeyOrder::descending || p.mask == Mask::causal) return {blocks, last};
  // The query block's position relative to the keys; its own block in self-attention.
  const std::int64_t own = query_block * p.key_blocks() / p.query_blocks();
  const std::int64_t first = own + numerics::kMidWindowBlocks;
  return {blocks, first < last ? first : last};
}

/// Everything that one block of queries visits: the key blocks of its traversal, then the repair
/// blocks, which stay outside the softmax. Queries that see no key visit nothing.
///
/// int: a step counts blocks of kKeyBlock keys, and kernels keep this in registers.
struct TileSequence {
  Traversal traversal;
  int repair_begin = 0;  // block number of the first repair block
  int count = 0;         // steps

  [[nodiscard]] OPENVC_HD constexpr int block(int step) const {
    const int softmax_blocks = static_cast<int>(traversal.blocks);
    return step < softmax_blocks ? static_cast<int>(traversal.block(step))
                                 : repair_begin + step - softmax_blocks;
  }
  [[nodiscard]] OPENVC_HD constexpr bool is_repair(int step) const {
    return step >= traversal.blocks;
  }
};

OPENVC_HD constexpr TileSequence tile_sequence(const Problem& p, std::int64_t query_block) {
  const Traversal order = traversal(p, query_block);
  return {order, static_cast<int>(p.key_blocks()),
          static_cast<int>(order.blocks) +
              (order.blocks > 0 ? static_cast<int>(p.repair_blocks()) : 0)};
}

}  // namespace openvc::schedule
