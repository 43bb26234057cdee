// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "numerics/key_permutation.hpp"
#include "schedule/problem.hpp"

// Memory layout of prepared attention inputs: one block, whose sections every backend reads alike.
namespace openvc::schedule {

/// What the main loop must know about a head. One 32-bit word.
struct HeadRule {
  std::uint8_t score_exponent = 0;   // accumulated scores count 2^score_exponent code units
  std::uint8_t extra_steps = 0;      // k-steps of QK residual columns, 0..kMaxExtraSteps
  std::uint8_t tail_correction = 0;  // 0 or 1
  std::uint8_t excess_exponent = 0;  // log-sum-exp alone: true scores are 2^excess_exponent larger
};
static_assert(sizeof(HeadRule) == 4);

/// Sections start at multiples of this many bytes: what tensor maps and 16-byte accesses need.
inline constexpr std::size_t kSectionAlignment = 256;

/// Rows of a block of packed V behind its channels: the code of 1 in the slots of keys that count
/// in the softmax denominator, 0 in those of padding and of repair rows. A tensor-core kernel
/// multiplies the probabilities with these rows as well and finds the row sums in its accumulators;
/// padding and repair rows stay outside them without a special case. All of them are equal: eight
/// is the granularity of the N dimension of a tensor-core product.
inline constexpr int kWeightRows = 8;
/// Rows of a block of packed V.
inline constexpr int kValueRows = numerics::kHeadDim + kWeightRows;
/// Bytes of a block of packed V, which is contiguous so that one bulk copy can fetch it.
inline constexpr std::size_t kValueBlockBytes = std::size_t{kValueRows} * numerics::kKeyBlock;
static_assert(kValueBlockBytes % kSectionAlignment == 0);

/// Byte offsets of the sections from the start of the block. "bh" is batch * heads + head.
///
/// Residual columns of steps beyond HeadRule::extra_steps have no meaning: a preparation need not
/// write them and nothing reads them.
///
/// Padding rows of K are copies of the head's last key: a kernel that does not mask them finds no
/// score that the row does not have anyhow, so padding cannot raise a row maximum. Padding rows of
/// Q and padding slots of V are zero.
struct PreparedLayout {
  std::size_t query_codes = 0;    // e4m3  [bh][padded_queries][kHeadDim]
  std::size_t key_codes = 0;      // e4m3  [bh][padded_keys][kHeadDim]
  std::size_t value_codes = 0;    // e4m3  [bh][block][kValueRows][kKeyBlock], keys permuted by 16
  std::size_t query_columns = 0;  // e4m3  [step][bh][padded_queries][kColumnsPerStep]
  std::size_t key_columns = 0;    // e4m3  [step][bh][padded_keys][kColumnsPerStep]
  std::size_t head_rules = 0;     // HeadRule [bh]
  std::size_t value_scales = 0;   // float [bh][kHeadDim]
  std::size_t value_means = 0;    // float [bh][kHeadDim]
  // float [bh][queries], only with log-sum-exp; nats in steps of 2^HeadRule::excess_exponent
  std::size_t smoothing_shifts = 0;
  std::size_t bytes = 0;  // size of the block
};

/// `max_extra_steps` planes of residual columns are laid out, whatever the plan of a head uses.
OPENVC_HD constexpr PreparedLayout prepared_layout(const Problem& p, int max_extra_steps,
                                                   bool with_log_sum_exp) {
  PreparedLayout layout;
  const auto bh = static_cast<std::size_t>(p.batch_heads());
  const std::size_t query_rows = bh * static_cast<std::size_t>(p.padded_queries());
  const std::size_t key_rows = bh * static_cast<std::size_t>(p.padded_keys());
  const auto steps = static_cast<std::size_t>(max_extra_steps);
  std::size_t end = 0;
  const auto place = [&end](std::size_t bytes) {
    const std::size_t start = end;
    end = (end + bytes + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment;
    return start;
  };
  layout.query_codes = place(query_rows * numerics::kHeadDim);
  layout.key_codes = place(key_rows * numerics::kHeadDim);
  layout.value_codes =
      place(bh * static_cast<std::size_t>(p.padded_key_blocks()) * kValueBlockBytes);
  layout.query_columns = place(steps * query_rows * numerics::kColumnsPerStep);
  layout.key_columns = place(steps * key_rows * numerics::kColumnsPerStep);
  layout.head_rules = place(bh * sizeof(HeadRule));
  layout.value_scales = place(bh * numerics::kHeadDim * sizeof(float));
  layout.value_means = place(bh * numerics::kHeadDim * sizeof(float));
  layout.smoothing_shifts =
      place(with_log_sum_exp ? bh * static_cast<std::size_t>(p.queries) * sizeof(float) : 0);
  layout.bytes = end;
  return layout;
}

/// Offset inside value_codes of the block of packed V with the keys [block * kKeyBlock, ...);
/// blocks of repair rows follow those of the softmax.
OPENVC_HD constexpr std::size_t value_block_offset(const Problem& p, std::int64_t bh,
                                                   std::int64_t block) {
  return static_cast<std::size_t>(bh * p.padded_key_blocks() + block) * kValueBlockBytes;
}

/// Offset inside value_codes of one element; `row` is a channel or kHeadDim + a weight row, `key` a
/// row of key_codes.
OPENVC_HD constexpr std::size_t value_code_offset(const Problem& p, std::int64_t bh, int row,
                                                  std::int64_t key) {
  const int slot = numerics::slot_of_key(static_cast<int>(key % numerics::kKeyBlock));
  return value_block_offset(p, bh, key / numerics::kKeyBlock) +
         static_cast<std::size_t>(row * numerics::kKeyBlock + slot);
}

/// Prepared inputs as a backend sees them.
struct PreparedView {
  const std::byte* data = nullptr;  // aligned to kSectionAlignment, on the backend's device
  Problem problem{};
  PreparedLayout layout{};
  int max_extra_steps = 0;
  bool with_log_sum_exp = false;
};

}  // namespace openvc::schedule
