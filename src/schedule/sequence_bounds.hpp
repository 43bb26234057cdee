// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "openvc/options.hpp"
#include "schedule/problem.hpp"

namespace openvc::schedule {

/// What a sequence of a batch has of queries and keys, where that is only known on the device:
/// Problem has the most of each, which is what memory and grids are made for.
struct SequenceBounds {
  std::int32_t queries = 0;
  std::int32_t keys = 0;         // that take part
  std::int32_t first_query = 0;  // its row in the tensors, where sequences are packed
  std::int32_t first_key = 0;

  /// The problem of this sequence: whatever is not in it does not exist.
  [[nodiscard]] OPENVC_HD constexpr Problem of(Problem problem) const {
    problem.queries = queries;
    problem.keys = keys;
    return problem;
  }
};

/// The bounds of the sequence of a head; `bounds` is [batch], or null where all sequences have all
/// tokens and their own place in the tensors.
OPENVC_HD constexpr SequenceBounds bounds_of_head(const Problem& problem,
                                                  const SequenceBounds* bounds,
                                                  std::int64_t batch_head) {
  if (bounds == nullptr) {
    return {static_cast<std::int32_t>(problem.queries), static_cast<std::int32_t>(problem.keys)};
  }
  return bounds[static_cast<std::uint32_t>(batch_head) / static_cast<std::uint32_t>(problem.heads)];
}

/// The problem of a head, with `bounds` as above.
OPENVC_HD constexpr Problem problem_of_head(const Problem& problem, const SequenceBounds* bounds,
                                            std::int64_t batch_head) {
  return bounds == nullptr ? problem : bounds_of_head(problem, bounds, batch_head).of(problem);
}

/// Tokens that a packed sequence has in one tensor.
struct TokenRange {
  std::int32_t first = 0;
  std::int32_t count = 0;
};

/// Those between two boundaries, at most `most`. Boundaries that fall, or leave the `tokens` tokens
/// of the tensor, take tokens away: a range never leaves the tensor.
OPENVC_HD constexpr TokenRange token_range(std::int64_t begin, std::int64_t end,
                                           std::int64_t tokens, std::int64_t most) {
  const std::int64_t first = begin < 0 ? 0 : (begin < tokens ? begin : tokens);
  const std::int64_t last = end < first ? first : (end < tokens ? end : tokens);
  const std::int64_t count = last - first < most ? last - first : most;
  return {static_cast<std::int32_t>(first), static_cast<std::int32_t>(count)};
}

/// Tokens that there is room for in each of packed sequences: at least one, so that nothing is
/// empty.
OPENVC_HD constexpr std::int64_t packed_room(std::int64_t longest, std::int64_t tokens) {
  const std::int64_t most = longest < tokens ? longest : tokens;
  return most < 1 ? 1 : most;
}

/// The bounds of packed sequence `b` of tensors with so many queries and keys.
OPENVC_HD constexpr SequenceBounds packed_bounds(const PackedSequences& sequences, std::int64_t b,
                                                 std::int64_t queries, std::int64_t keys) {
  const TokenRange of_q = token_range(sequences.cu_seqlens_q[b], sequences.cu_seqlens_q[b + 1],
                                      queries, sequences.max_seqlen_q);
  const TokenRange of_k = token_range(sequences.cu_seqlens_k[b], sequences.cu_seqlens_k[b + 1],
                                      keys, sequences.max_seqlen_k);
  return {of_q.count, of_k.count, of_q.first, of_k.first};
}

}  // namespace openvc::schedule
