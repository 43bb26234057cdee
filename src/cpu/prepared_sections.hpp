// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "numerics/contract.hpp"
#include "numerics/online_softmax.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cpu {

/// Typed access to the sections of prepared inputs. "bh" is batch * heads + head.
class PreparedSections {
 public:
  explicit PreparedSections(const schedule::PreparedView& view) : view_(view) {}

  [[nodiscard]] const std::uint8_t* query_row(std::int64_t bh, std::int64_t query) const {
    return codes(view_.layout.query_codes) +
           (bh * view_.problem.padded_queries() + query) * numerics::kHeadDim;
  }
  [[nodiscard]] const std::uint8_t* query_columns(int step, std::int64_t bh,
                                                  std::int64_t query) const {
    const std::int64_t plane = step * view_.problem.batch_heads() + bh;
    return codes(view_.layout.query_columns) +
           (plane * view_.problem.padded_queries() + query) * numerics::kColumnsPerStep;
  }
  [[nodiscard]] const std::uint8_t* key_row(std::int64_t bh, std::int64_t key) const {
    return codes(view_.layout.key_codes) +
           (bh * view_.problem.padded_keys() + key) * numerics::kHeadDim;
  }
  [[nodiscard]] const std::uint8_t* key_columns(int step, std::int64_t bh, std::int64_t key) const {
    const std::int64_t plane = step * view_.problem.batch_heads() + bh;
    return codes(view_.layout.key_columns) +
           (plane * view_.problem.padded_keys() + key) * numerics::kColumnsPerStep;
  }
  /// kHeadDim rows of kKeyBlock codes, then the weight rows.
  [[nodiscard]] const std::uint8_t* value_block(std::int64_t bh, std::int64_t key_block) const {
    return codes(view_.layout.value_codes) +
           schedule::value_block_offset(view_.problem, bh, key_block);
  }
  [[nodiscard]] schedule::HeadRule head_rule(std::int64_t bh) const {
    schedule::HeadRule rule;
    std::memcpy(&rule,
                view_.data + view_.layout.head_rules + static_cast<std::size_t>(bh) * sizeof(rule),
                sizeof(rule));
    return rule;
  }
  [[nodiscard]] numerics::ProbabilityRule probability_rule(std::int64_t bh) const {
    const schedule::HeadRule rule = head_rule(bh);
    return {.score_exponent = rule.score_exponent, .tail_correction = rule.tail_correction != 0};
  }
  /// Columns of the contraction of Q and K.
  [[nodiscard]] int columns(std::int64_t bh) const {
    return numerics::kHeadDim + head_rule(bh).extra_steps * numerics::kColumnsPerStep;
  }
  [[nodiscard]] const float* value_scales(std::int64_t bh) const {
    return floats(view_.layout.value_scales) + bh * numerics::kHeadDim;
  }
  [[nodiscard]] const float* value_means(std::int64_t bh) const {
    return floats(view_.layout.value_means) + bh * numerics::kHeadDim;
  }
  /// Null unless the inputs were prepared for the log-sum-exp.
  [[nodiscard]] const float* smoothing_shifts(std::int64_t bh) const {
    if (!view_.with_log_sum_exp) return nullptr;
    return floats(view_.layout.smoothing_shifts) + bh * view_.problem.queries;
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
