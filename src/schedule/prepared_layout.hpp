// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "schedule/problem.hpp"

// Memory layout of prepared attention inputs: one block, whose sections every backend reads alike.
namespace openvc::schedule {

/// What the main loop must know about a head. One 32-bit word.
struct HeadRule {
  std::uint8_t score_exponent = 0;   // accumulated scores count 2^score_exponent code units
  std::uint8_t extra_steps = 0;      // k-steps of QK residual columns, 0..kMaxExtraSteps
  std::uint8_t tail_correction = 0;  // 0 or 1
  std::uint8_t reserved = 0;
};
static_assert(sizeof(HeadRule) == 4);

/// Sections start at multiples of this many bytes: what tensor maps and 16-byte accesses need.
inline constexpr std::size_t kSectionAlignment = 256;

/// Byte offsets of the sections from the start of the block. "bh" is batch * heads + head.
struct PreparedLayout {
  std::size_t query_codes = 0;    // e4m3  [bh][padded_queries][kHeadDim]
  std::size_t key_codes = 0;      // e4m3  [bh][padded_keys][kHeadDim]
  std::size_t value_codes = 0;    // e4m3  [bh][kHeadDim][padded_keys], keys permuted by 16
  std::size_t query_columns = 0;  // e4m3  [step][bh][padded_queries][kColumnsPerStep]
  std::size_t key_columns = 0;    // e4m3  [step][bh][padded_keys][kColumnsPerStep]
  std::size_t head_rules = 0;     // HeadRule [bh]
  std::size_t value_scales = 0;   // float [bh][kHeadDim]
  std::size_t value_means = 0;    // float [bh][kHeadDim]
  std::size_t smoothing_shifts = 0;  // float [bh][queries], only with log-sum-exp
  std::size_t bytes = 0;             // size of the block
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
  layout.value_codes = place(key_rows * numerics::kHeadDim);
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

/// Prepared inputs as a backend sees them.
struct PreparedView {
  const std::byte* data = nullptr;  // aligned to kSectionAlignment, on the backend's device
  Problem problem{};
  PreparedLayout layout{};
  int max_extra_steps = 0;
  bool with_log_sum_exp = false;
};

}  // namespace openvc::schedule
