// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "schedule/problem.hpp"

namespace openvc::schedule {

/// Where a thread block stands in a persistent grid of clusters.
struct ClusterCoord {
  std::uint32_t cluster = 0;   // this block's cluster, 0..clusters - 1
  std::uint32_t clusters = 1;  // in the grid
  std::uint32_t rank = 0;      // of this block in its cluster
};

/// Query rows of one head that a thread block computes.
struct WorkTile {
  std::int64_t batch_head = 0;
  std::int64_t query_tile = 0;  // in units of rows_per_block
};

/// Static list of all work of a persistent kernel: heads outermost, so that the keys and values of
/// the head that everybody works on stay in L2. An item is what a cluster computes together, one
/// tile for each of its blocks. Cluster c takes the items c, c + clusters, ...
struct WorkQueue {
  std::int64_t blocks_per_cluster = 1;
  std::int64_t items_per_head = 0;
  std::int64_t count = 0;  // items

  OPENVC_HD constexpr WorkQueue(const Problem& p, std::int64_t rows_per_block,
                                std::int64_t cluster_size)
      : blocks_per_cluster(cluster_size),
        items_per_head(numerics::ceil_div(p.queries, rows_per_block * cluster_size)),
        count(items_per_head * p.batch_heads()) {}

  /// The tile of the block of this rank in an item.
  [[nodiscard]] OPENVC_HD constexpr WorkTile tile(std::int64_t item, std::uint32_t rank) const {
    return {item / items_per_head, item % items_per_head * blocks_per_cluster + rank};
  }
};

}  // namespace openvc::schedule
