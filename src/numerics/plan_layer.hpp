// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "numerics/head_plan.hpp"
#include "numerics/plan_scores.hpp"
#include "numerics/statistics.hpp"
#include "numerics/v_quantize.hpp"

// From the statistics of all heads of a layer to the plan of each: the one place where numeric
// options become decisions. Pure, so tests judge it against an oracle. A device does the same for
// one head by many threads (cuda/prepare/finish.cuh), from the same pieces and to the same bits.
namespace openvc::numerics {

/// What a plan depends on besides statistics.
struct PlanRequest {
  std::int64_t queries = 1;  ///< per head
  std::int64_t keys = 1;     ///< per head
  float softmax_scale = 1.0f;
  NumericOptions numerics{};  ///< the budget: which remedies may be used, and their price
};

/// The plan of one head.
template <int kDim>
HeadPlanOf<kDim> plan_head(const HeadStatisticsOf<kDim>& statistics, const PlanRequest& request) {
  HeadPlanOf<kDim> plan;
  plan_scores(statistics.scores, request.queries, request.keys, request.softmax_scale,
              request.numerics, plan);
  plan_values(statistics, request.keys, request.numerics, plan);
  return plan;
}

/// The plans of all heads of a call, in their order. Every head spends by the same price, so its
/// plan does not depend on the others (docs/numerics.md section 2 has what weighing them would
/// change).
inline std::vector<HeadPlan> plan_layer(std::span<const HeadStatistics> statistics,
                                        const PlanRequest& request) {
  std::vector<HeadPlan> plans;
  plans.reserve(statistics.size());
  for (const HeadStatistics& head : statistics) plans.push_back(plan_head(head, request));
  return plans;
}

}  // namespace openvc::numerics
