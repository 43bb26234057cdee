// SPDX-License-Identifier: BSD-3-Clause
#include "schedule/work_queue.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <utility>

namespace openvc::schedule {
namespace {

// Every tile of every head belongs to one block of one cluster, whatever the grid.
TEST(WorkQueue, ClustersShareAllTilesWithoutOverlap) {
  constexpr std::int64_t kRows = 128;
  for (const std::int64_t queries : {1, 127, 128, 129, 256, 257, 1000, 4097}) {
    for (const std::int64_t heads : {1, 3}) {
      for (const std::uint32_t size : {1u, 2u, 4u}) {
        for (const std::uint32_t clusters : {1u, 2u, 7u, 100u}) {
          const Problem p{.batch = 2, .heads = heads, .queries = queries, .keys = 1};
          const WorkQueue queue(p, kRows, size);
          std::map<std::pair<std::int64_t, std::int64_t>, int> visits;
          for (ClusterCoord c{.clusters = clusters}; c.cluster < clusters; ++c.cluster) {
            for (c.rank = 0; c.rank < size; ++c.rank) {
              for (std::int64_t i = c.cluster; i < queue.count; i += c.clusters) {
                const WorkTile work = queue.tile(i, c.rank);
                ++visits[{work.batch_head, work.query_tile}];
              }
            }
          }
          const std::int64_t tiles = numerics::ceil_div(queries, kRows * size) * size;
          ASSERT_EQ(visits.size(), static_cast<std::size_t>(tiles * p.batch_heads()));
          for (const auto& [tile, count] : visits) {
            ASSERT_EQ(count, 1);
            ASSERT_LT(tile.first, p.batch_heads());
            ASSERT_LT(tile.second, tiles);
          }
        }
      }
    }
  }
}

// Blocks of a cluster work on neighbouring rows of one head: they share its key tiles.
TEST(WorkQueue, AClusterStaysInOneHead) {
  const Problem p{.batch = 1, .heads = 5, .queries = 1000, .keys = 1000};
  const WorkQueue queue(p, 128, 2);
  for (std::int64_t item = 0; item < queue.count; ++item) {
    const WorkTile first = queue.tile(item, 0);
    const WorkTile second = queue.tile(item, 1);
    EXPECT_EQ(first.batch_head, second.batch_head);
    EXPECT_EQ(first.query_tile + 1, second.query_tile);
    EXPECT_EQ(first.batch_head, item / queue.items_per_head);
  }
}

}  // namespace
}  // namespace openvc::schedule
