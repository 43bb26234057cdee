// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/attention_kernel.hpp"
#include "numerics/contract.hpp"
#include "numerics/head_rule.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cpu {

/// Typed access to the sections of prepared inputs. "bh" is batch * heads + head.
class PreparedSections {
 public:
  explicit PreparedSections(const schedule::PreparedView& view) : view_(view) {}

  [[nodiscard]] const std::uint8_t* query_row(std::int64_t bh, std::int64_t query) const {
    return codes(view_.layout.query_at(bh, query));
  }
  [[nodiscard]] const std::uint8_t* query_columns(int step, std::int64_t bh,
                                                  std::int64_t query) const {
    return codes(view_.layout.query_columns_at(step, bh, query));
  }
  [[nodiscard]] const std::uint8_t* key_row(std::int64_t bh, std::int64_t key) const {
    return codes(view_.layout.key_at(bh, key));
  }
  [[nodiscard]] const std::uint8_t* key_columns(int step, std::int64_t bh, std::int64_t key) const {
    return codes(view_.layout.key_columns_at(step, bh, key));
  }
  /// kHeadDim rows of kKeyBlock codes, those of residual columns, then the rows of ones.
  [[nodiscard]] const std::uint8_t* value_block(std::int64_t bh, std::int64_t key_block) const {
    return codes(view_.layout.value_block_at(bh, key_block));
  }
  [[nodiscard]] numerics::HeadRule head_rule(std::int64_t bh) const {
    numerics::HeadRule rule;
    std::memcpy(&rule, view_.data + view_.layout.head_rule_at(bh), sizeof(rule));
    return rule;
  }
  /// Columns of the contraction of Q and K.
  [[nodiscard]] int columns(std::int64_t bh) const {
    return numerics::kHeadDim + head_rule(bh).extra_steps * numerics::kColumnsPerStep;
  }
  /// Rows of packed V to multiply.
  [[nodiscard]] int value_rows(std::int64_t bh) const {
    return head_rule(bh).values_on_axes() ? kMaxValueRows : numerics::kHeadDim;
  }
  /// The basis of V: bfloat16 (channel, basis_columns).
  [[nodiscard]] const std::uint16_t* value_basis(std::int64_t bh) const {
    return reinterpret_cast<const std::uint16_t*>(view_.data + view_.layout.value_basis_at(bh));
  }
  [[nodiscard]] const float* value_scales(std::int64_t bh) const {
    return floats(view_.layout.value_scales_at(bh));
  }
  [[nodiscard]] const float* value_means(std::int64_t bh) const {
    return floats(view_.layout.value_means_at(bh));
  }
  /// Null unless the inputs were prepared for the log-sum-exp.
  [[nodiscard]] const float* smoothing_shifts(std::int64_t bh) const {
    if (!view_.with_log_sum_exp) return nullptr;
    return floats(view_.layout.smoothing_shift_at(bh, 0));
  }

 private:
  [[nodiscard]] const std::uint8_t* codes(std::size_t offset) const {
    return reinterpret_cast<const std::uint8_t*>(view_.data + offset);
  }
  [[nodiscard]] const float* floats(std::size_t offset) const {
    return reinterpret_cast<const float*>(view_.data + offset);
  }

  const schedule::PreparedView& view_;
};

}  // namespace openvc::cpu
