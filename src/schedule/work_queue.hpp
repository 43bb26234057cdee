// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "schedule/problem.hpp"

namespace openvc::schedule {

/// Query rows of one head that a cluster of blocks computes together.
struct WorkTile {
  std::int64_t batch_head = 0;
  std::int64_t tile = 0;  // in units of rows_per_tile
};

/// Static list of all work of a persistent kernel: heads outermost, so that the keys and values of
/// the head that everybody works on stay in the L2 cache. Worker w takes w, w + workers, ...
struct WorkQueue {
  std::int64_t tiles_per_head = 0;
  std::int64_t count = 0;

  OPENVC_HD constexpr WorkQueue(const Problem& p, std::int64_t rows_per_tile)
      : tiles_per_head(numerics::ceil_div(p.queries, rows_per_tile)),
        count(tiles_per_head * p.batch_heads()) {}

  [[nodiscard]] OPENVC_HD constexpr WorkTile tile(std::int64_t index) const {
    return {index / tiles_per_head, index % tiles_per_head};
  }
};

}  // namespace openvc::schedule
