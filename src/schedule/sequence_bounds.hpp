// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "schedule/problem.hpp"

namespace openvc::schedule {

/// What a sequence of a batch has of queries and keys, where that is only known on the device:
/// Problem has the most of each, which is what memory and grids are made for.
struct SequenceBounds {
  std::int32_t queries = 0;
  std::int32_t keys = 0;  // that take part

  /// The problem of this sequence: whatever is not in it does not exist.
  [[nodiscard]] OPENVC_HD constexpr Problem of(Problem problem) const {
    problem.queries = queries;
    problem.keys = keys;
    return problem;
  }
};

/// The problem of a head; `bounds` is [batch], or null where all sequences have all tokens.
OPENVC_HD constexpr Problem problem_of_head(const Problem& problem, const SequenceBounds* bounds,
                                            std::int64_t batch_head) {
  if (bounds == nullptr) return problem;
  return bounds[static_cast<std::uint32_t>(batch_head) / static_cast<std::uint32_t>(problem.heads)]
      .of(problem);
}

}  // namespace openvc::schedule
