// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "schedule/problem.hpp"

// Which scores take part in the softmax. Every backend asks these.
namespace openvc::schedule {

/// Number of leading keys that query 0 sees under a causal mask, if there are as many; each further
/// query sees one more.
OPENVC_HD constexpr std::int64_t causal_start(const Problem& p) { return 1 + p.keys - p.queries; }

/// Number of leading keys that a query sees. Causal masks are aligned to the bottom right: the last
/// query sees all keys, and a query may see none (0) when there are fewer keys than queries.
OPENVC_HD constexpr std::int64_t visible_keys(const Problem& p, std::int64_t query) {
  if (p.mask == Mask::none) return p.keys;
  const std::int64_t visible = query + causal_start(p);
  return visible < 0 ? 0 : (visible < p.keys ? visible : p.keys);
}

enum class TileClass : std::uint8_t { empty, partial, full };

/// Class of the tile of queries [first_query, last_query] and one block of keys. Rows beyond the
/// last query do not count: pass the last row that exists.
OPENVC_HD constexpr TileClass tile_class(const Problem& p, std::int64_t first_query,
                                         std::int64_t last_query, std::int64_t key_block) {
  const std::int64_t first_key = key_block * numerics::kKeyBlock;
  if (visible_keys(p, last_query) <= first_key) return TileClass::empty;
  if (visible_keys(p, first_query) < first_key + numerics::kKeyBlock) return TileClass::partial;
  return TileClass::full;
}

}  // namespace openvc::schedule
