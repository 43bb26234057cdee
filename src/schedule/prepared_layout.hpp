// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "numerics/head_rule.hpp"
#include "numerics/key_permutation.hpp"
#include "numerics/principal_axes.hpp"
#include "schedule/problem.hpp"
#include "schedule/sequence_bounds.hpp"

// Memory layout of prepared attention inputs: one block, whose sections every backend reads alike.
namespace openvc::schedule {

/// Sections start at multiples of this many bytes: what tensor maps and 16-byte accesses need.
inline constexpr std::size_t kSectionAlignment = 256;

/// What a kernel wants of the packed tensors besides the contract. Never changes a result.
struct PackedFormat {
  /// Prepared Q has a multiple of so many rows per head.
  int query_tile = 0;
  /// Rows of a block of packed V behind its channels and residual columns: the code of 1 in the
  /// slots of keys that count in the softmax denominator, 0 in those of padding and of repair rows.
  /// A tensor-core kernel multiplies the probabilities with these rows as well and finds the row
  /// sums in its accumulators; padding and repair rows stay outside them without a special case.
  /// All of them are equal; their number follows from the N dimension that the product allows.
  int ones_rows = 0;

  friend constexpr bool operator==(const PackedFormat&, const PackedFormat&) = default;
};

/// Byte offsets of the sections from the start of the block, and of what they hold. "bh" is batch *
/// heads + head.
///
/// Residual columns of steps beyond HeadRule::extra_steps have no meaning: a preparation need not
/// write them and nothing reads them.
///
/// A block of packed V holds a row of codes for each channel (or axis, where HeadRule tells so),
/// one for each of the kValueColumns strongest axes with what their rounding left, in the same
/// scale (zeros in heads without axes), and the rows of ones.
///
/// A row of a basis of V is an element of each axis, then the second terms of those of the
/// strongest kValueAxes (numerics::basis_terms).
///
/// Channels that the tensors do not have are zero, but for those of V that hold what the rounding
/// of others left (has_spare_residual()). Heads of a group of Q have prepared K and V of their own,
/// because their axes and scales are their own.
///
/// Padding rows of K are copies of the last row of their block that is none: a kernel that does not
/// mask them finds no score that the block does not have anyhow, so padding cannot raise its
/// largest. Padding rows of Q and padding slots of V are zero.
struct PreparedLayout {
  std::size_t query_codes = 0;       // e4m3  [bh][query_rows][head_dim]
  std::size_t key_codes = 0;         // e4m3  [bh][key_rows][head_dim]
  std::size_t value_codes = 0;       // e4m3  [bh][block][value_rows][kKeyBlock], keys permuted
  std::size_t query_columns = 0;     // e4m3  [step][bh][query_rows][kColumnsPerStep]
  std::size_t key_columns = 0;       // e4m3  [step][bh][key_rows][kColumnsPerStep]
  std::size_t head_rules = 0;        // HeadRule [bh]
  std::size_t value_scales = 0;      // float [bh][head_dim]
  std::size_t value_means = 0;       // float [bh][head_dim]
  std::size_t value_bases = 0;       // bfloat16 [bh][channel][basis_columns], only with axes of V
  std::size_t smoothing_shifts = 0;  // float [bh][queries], only with log-sum-exp
  std::size_t bounds = 0;            // SequenceBounds [batch], only where they differ
  std::size_t bytes = 0;             // size of the block

  std::int64_t batch_heads = 0;
  std::int64_t queries = 0;     // per head
  std::int64_t query_rows = 0;  // of prepared Q per head, padding included
  std::int64_t key_rows = 0;    // of prepared K per head: keys, padding, repair rows, padding
  int head_dim = 0;             // of a prepared row: kHeadDim, whatever the tensors have
  PackedFormat format{};

  /// Rows of a block of packed V.
  [[nodiscard]] OPENVC_HD constexpr int value_rows() const { return ones_row() + format.ones_rows; }
  /// The first row of ones.
  [[nodiscard]] OPENVC_HD constexpr int ones_row() const {
    return head_dim + numerics::kValueColumns;
  }
  /// Bytes of a block of packed V, which is contiguous so that one bulk copy can fetch it.
  [[nodiscard]] OPENVC_HD constexpr std::size_t value_block_bytes() const {
    return static_cast<std::size_t>(value_rows()) * numerics::kKeyBlock;
  }

  [[nodiscard]] OPENVC_HD constexpr std::size_t query_at(std::int64_t bh, std::int64_t row) const {
    return query_codes + static_cast<std::size_t>((bh * query_rows + row) * head_dim);
  }
  [[nodiscard]] OPENVC_HD constexpr std::size_t key_at(std::int64_t bh, std::int64_t row) const {
    return key_codes + static_cast<std::size_t>((bh * key_rows + row) * head_dim);
  }
  [[nodiscard]] OPENVC_HD constexpr std::size_t query_columns_at(int step, std::int64_t bh,
                                                                 std::int64_t row) const {
    const std::int64_t plane = step * batch_heads + bh;
    return query_columns +
           static_cast<std::size_t>((plane * query_rows + row) * numerics::kColumnsPerStep);
  }
  [[nodiscard]] OPENVC_HD constexpr std::size_t key_columns_at(int step, std::int64_t bh,
                                                               std::int64_t row) const {
    const std::int64_t plane = step * batch_heads + bh;
    return key_columns +
           static_cast<std::size_t>((plane * key_rows + row) * numerics::kColumnsPerStep);
  }
  /// Block of packed V with the keys [block * kKeyBlock, ...); blocks of repair rows follow those
  /// of the softmax.
  [[nodiscard]] OPENVC_HD constexpr std::size_t value_block_at(std::int64_t bh,
                                                               std::int64_t block) const {
    return value_codes + static_cast<std::size_t>(bh * (key_rows / numerics::kKeyBlock) + block) *
                             value_block_bytes();
  }
  /// One element of packed V; `row` is a channel, head_dim + a residual column, or a row of ones,
  /// `key` a row of prepared K.
  [[nodiscard]] OPENVC_HD constexpr std::size_t value_code_at(std::int64_t bh, int row,
                                                              std::int64_t key) const {
    const int slot = numerics::slot_of_key(static_cast<int>(key % numerics::kKeyBlock));
    return value_block_at(bh, key / numerics::kKeyBlock) +
           static_cast<std::size_t>(row * numerics::kKeyBlock + slot);
  }
  [[nodiscard]] OPENVC_HD constexpr std::size_t head_rule_at(std::int64_t bh) const {
    return head_rules + static_cast<std::size_t>(bh) * sizeof(numerics::HeadRule);
  }
  [[nodiscard]] OPENVC_HD constexpr int basis_columns() const {
    return head_dim + numerics::kValueAxes;
  }
  [[nodiscard]] OPENVC_HD constexpr std::size_t value_basis_bytes() const {
    return sizeof(std::uint16_t) * static_cast<std::size_t>(head_dim * basis_columns());
  }
  [[nodiscard]] OPENVC_HD constexpr std::size_t value_basis_at(std::int64_t bh) const {
    return value_bases + static_cast<std::size_t>(bh) * value_basis_bytes();
  }
  [[nodiscard]] OPENVC_HD constexpr std::size_t value_scales_at(std::int64_t bh) const {
    return value_scales + static_cast<std::size_t>(bh * head_dim) * sizeof(float);
  }
  [[nodiscard]] OPENVC_HD constexpr std::size_t value_means_at(std::int64_t bh) const {
    return value_means + static_cast<std::size_t>(bh * head_dim) * sizeof(float);
  }
  [[nodiscard]] OPENVC_HD constexpr std::size_t smoothing_shift_at(std::int64_t bh,
                                                                   std::int64_t query) const {
    return smoothing_shifts + static_cast<std::size_t>(bh * queries + query) * sizeof(float);
  }
};

/// `max_extra_steps` planes of residual columns are laid out, whatever the plan of a head uses.
OPENVC_HD constexpr PreparedLayout prepared_layout(const Problem& p, int max_extra_steps,
                                                   bool with_log_sum_exp,
                                                   const PackedFormat& format,
                                                   bool with_value_axes = false,
                                                   bool with_bounds = false) {
  PreparedLayout layout;
  layout.batch_heads = p.batch_heads();
  layout.queries = p.queries;
  layout.query_rows = numerics::round_up(p.queries, format.query_tile);
  layout.key_rows = p.padded_keys();
  layout.head_dim = numerics::kHeadDim;
  layout.format = format;

  const auto bh = static_cast<std::size_t>(layout.batch_heads);
  const std::size_t query_rows = bh * static_cast<std::size_t>(layout.query_rows);
  const std::size_t key_rows = bh * static_cast<std::size_t>(layout.key_rows);
  const auto channels = static_cast<std::size_t>(layout.head_dim);
  const auto steps = static_cast<std::size_t>(max_extra_steps);
  std::size_t end = 0;
  const auto place = [&end](std::size_t bytes) {
    const std::size_t start = end;
    end = (end + bytes + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
    return start;
  };
  layout.query_codes = place(query_rows * channels);
  layout.key_codes = place(key_rows * channels);
  layout.value_codes =
      place(bh * static_cast<std::size_t>(p.padded_key_blocks()) * layout.value_block_bytes());
  layout.query_columns = place(steps * query_rows * numerics::kColumnsPerStep);
  layout.key_columns = place(steps * key_rows * numerics::kColumnsPerStep);
  layout.head_rules = place(bh * sizeof(numerics::HeadRule));
  layout.value_scales = place(bh * channels * sizeof(float));
  layout.value_means = place(bh * channels * sizeof(float));
  layout.value_bases = place(with_value_axes ? bh * layout.value_basis_bytes() : 0);
  layout.smoothing_shifts =
      place(with_log_sum_exp ? bh * static_cast<std::size_t>(p.queries) * sizeof(float) : 0);
  layout.bounds =
      place(with_bounds ? static_cast<std::size_t>(p.batch) * sizeof(SequenceBounds) : 0);
  layout.bytes = end;
  return layout;
}

/// Channels of V that tensors of fewer than kHeadDim channels do not have hold, in the same scale,
/// what the rounding of channels kSpareDistance before them left. Adding their sums to those is the
/// last step of every backend; without residuals (V repair brings its own) they are zero.
inline constexpr int kSpareDistance = numerics::kHeadDim / 2;

/// Whether the residual of a channel of V has a place.
OPENVC_HD constexpr bool has_spare_residual(int channel, int head_dim) {
  return channel < head_dim && channel < kSpareDistance && channel + kSpareDistance >= head_dim;
}

/// Prepared inputs as a backend sees them.
struct PreparedView {
  const std::byte* data = nullptr;  // aligned to kSectionAlignment, on the backend's device
  Problem problem{};
  PreparedLayout layout{};
  int max_extra_steps = 0;
  bool with_log_sum_exp = false;
  bool with_value_axes = false;  // heads may have values_on_axes(); the bases are there
  bool with_bounds = false;      // sequences may have fewer tokens than `problem` says

  /// [batch], or null where all sequences have all tokens.
  [[nodiscard]] const SequenceBounds* bounds() const {
    return with_bounds ? reinterpret_cast<const SequenceBounds*>(data + layout.bounds) : nullptr;
  }
};

}  // namespace openvc::schedule
