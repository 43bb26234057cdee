// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/thread_pool.hpp"
#include "numerics/head_plan.hpp"
#include "numerics/statistics.hpp"
#include "schedule/prepare_request.hpp"

namespace openvc::cpu {

/// What Q and K of a head are multiplied by, [channel][column]; empty for a head that is not on
/// axes.
using HeadBasis = std::vector<float>;

/// Principal axes of all heads of a request, where it wants any.
class HeadAxes {
 public:
  /// Finds the axes from samples, and adds their shares to the statistics.
  HeadAxes(const schedule::PrepareRequest& request, std::span<numerics::HeadStatistics> statistics,
           ThreadPool& pool);

  /// The matrices of the heads that are on axes by their plans.
  [[nodiscard]] std::vector<HeadBasis> bases(std::span<const numerics::HeadPlan> plans,
                                             ThreadPool& pool) const;

 private:
  int columns_;
  std::vector<std::vector<float>> axes_;  // [bh], [channel][column]; empty without axes
};

}  // namespace openvc::cpu
