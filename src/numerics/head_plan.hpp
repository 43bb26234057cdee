// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "numerics/head_rule.hpp"
#include "openvc/options.hpp"

// The plan of a head: what the preparation decides from statistics (plan_layer.hpp), all that
// quantisation needs besides the elements, and what the reports show. Main loops read its rule().
namespace openvc::numerics {

/// What a plan expects of one source of error.
struct Prediction {
  float error = 0.0f;  ///< in the unit of its source
  float cost = 0.0f;   ///< extra time, as a share of the head's time without any
};

/// Extra columns of the contraction of Q and K over the columns of both matrix products.
template <int kDim>
inline constexpr float kExtraStepCost = static_cast<float>(kColumnsPerStep) / (2 * kDim);

inline constexpr int kMaxResidualChannels = kMaxExtraSteps * kResidualChannelsPerStep;

/// What a head decides about Q and K as a whole.
struct ScorePlan {
  float query_multiplier = 1.0f;
  float key_multiplier = 1.0f;
  std::int32_t score_exponent = 0;
  std::int32_t excess_exponent = 0;  ///< log-sum-exp alone: true scores are 2^this larger
  float shift_unit = 1.0f;           ///< 2^(exponents of both multipliers - excess_exponent)
  std::int32_t extra_steps = 0;
  float error_variance = 0.0f;  ///< predicted, code units squared
  std::uint8_t rotated = 0;     ///< 0 or 1: Hadamard rotation of Q and K
  std::uint8_t wide = 0;        ///< 0 or 1, HeadRule::wide()
  std::uint8_t axes = 0;        ///< 0 or 1: Q and K on the basis of their principal axes
  std::uint8_t reserved = 0;
};

/// Without padding: backends copy and compare it as bytes.
template <int kDim>
struct HeadPlanOf {
  ScorePlan scores;
  Prediction score_rounding;        ///< standard deviation of a score, code units
  Prediction value_rounding;        ///< of V about the removed mean, relative RMS
  std::int32_t values_on_axes = 0;  ///< 0 or 1: V less its means is multiplied by a basis
  std::int32_t reserved[3] = {};    ///< the tables start at a multiple of 16 bytes
  float key_means[kDim] = {};
  float value_means[kDim] = {};
  float value_scales[kDim] = {};  ///< of axes, where V is on axes
  float value_multipliers[kDim] = {};
  /// Channels (columns, on axes) with residual columns, by rank; step s, position p holds entry
  /// 16 s + p.
  std::uint8_t residual_channels[kMaxResidualChannels] = {};

  [[nodiscard]] OPENVC_HD constexpr HeadRule rule() const {
    return head_rule(scores.score_exponent, scores.wide != 0, scores.extra_steps,
                     scores.excess_exponent, values_on_axes != 0);
  }
};

using HeadPlan = HeadPlanOf<kHeadDim>;
static_assert(sizeof(HeadPlan) % 16 == 0);
static_assert(offsetof(HeadPlan, key_means) % 16 == 0, "tables are read 16 bytes at a time");
static_assert(sizeof(HeadPlan) ==
              offsetof(HeadPlan, key_means) + 4 * kHeadDim * sizeof(float) + kMaxResidualChannels);

/// What the public interface tells about a plan.
constexpr openvc::HeadPlan summary(const HeadPlan& plan) {
  return {.extra_steps = plan.scores.extra_steps,
          .rotated = plan.scores.rotated != 0 || plan.scores.axes != 0,
          .score_exponent = plan.scores.score_exponent,
          .predicted_score_error = plan.score_rounding.error};
}

inline std::vector<openvc::HeadPlan> summaries(std::span<const HeadPlan> plans) {
  std::vector<openvc::HeadPlan> result;
  result.reserve(plans.size());
  for (const HeadPlan& plan : plans) result.push_back(summary(plan));
  return result;
}

}  // namespace openvc::numerics
