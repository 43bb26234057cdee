// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "openvc/options.hpp"

namespace openvc::schedule {

/// What is computed, without the tensors. All backends derive their work from this alone.
struct Problem {
  std::int64_t batch = 1;
  std::int64_t heads = 1;             // of Q, and of the output
  std::int64_t heads_per_group = 1;   // that share a head of K and V
  std::int64_t queries = 1;           // per head
  std::int64_t keys = 1;              // per head
  int head_dim = numerics::kHeadDim;  // channels of the tensors; prepared rows are kHeadDim wide
  std::int64_t repair_rows = 0;       // extra key/value rows per head outside the denominator
  Mask mask = Mask::none;
  KeyOrder key_order = KeyOrder::mid_window;

  [[nodiscard]] OPENVC_HD constexpr std::int64_t batch_heads() const { return batch * heads; }
  /// The head of K and V that a head of Q belongs to.
  [[nodiscard]] OPENVC_HD constexpr std::int64_t key_head(std::int64_t head) const {
    return head / heads_per_group;
  }
  [[nodiscard]] OPENVC_HD constexpr std::int64_t key_heads() const {
    return heads / heads_per_group;
  }
  [[nodiscard]] OPENVC_HD constexpr std::int64_t query_blocks() const {
    return numerics::ceil_div(queries, numerics::kQueryBlock);
  }
  /// Blocks that take part in the softmax.
  [[nodiscard]] OPENVC_HD constexpr std::int64_t key_blocks() const {
    return numerics::ceil_div(keys, numerics::kKeyBlock);
  }
  [[nodiscard]] OPENVC_HD constexpr std::int64_t repair_blocks() const {
    return numerics::ceil_div(repair_rows, numerics::kKeyBlock);
  }
  /// Blocks that prepared K and V have per head: those of the softmax, then those of repair rows.
  [[nodiscard]] OPENVC_HD constexpr std::int64_t padded_key_blocks() const {
    return key_blocks() + repair_blocks();
  }
  /// Rows that prepared K has per head: keys, padding, repair rows, padding.
  [[nodiscard]] OPENVC_HD constexpr std::int64_t padded_keys() const {
    return padded_key_blocks() * numerics::kKeyBlock;
  }
};

}  // namespace openvc::schedule
