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

/// What rows are multiplied by, [channel][column]; empty for a head that is not on axes.
using HeadBasis = std::vector<float>;

/// Of Q and K, and of V.
struct HeadBases {
  HeadBasis scores;
  HeadBasis values;
};

/// Principal axes of all heads of a request, where it wants any.
class HeadAxes {
 public:
  /// Finds the axes from samples, and adds what they hold to the statistics.
  HeadAxes(const schedule::PrepareRequest& request, std::span<numerics::HeadStatistics> statistics,
           ThreadPool& pool);

  /// The matrices of the heads that are on axes by their plans.
  [[nodiscard]] std::vector<HeadBases> bases(std::span<const numerics::HeadPlan> plans,
                                             ThreadPool& pool) const;

 private:
  struct Axes {
    std::vector<float> scores;  // [channel][column]; empty without axes
    std::vector<float> values;
  };

  int columns_;  // of the axes of Q and K
  std::vector<Axes> axes_;
};

}  // namespace openvc::cpu
