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
/// of a video model is strongest: the running maximum settles early and rows are rarely rescaled.
/// Starting at the last block gives the plain descending order.
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

}  // namespace openvc::schedule
