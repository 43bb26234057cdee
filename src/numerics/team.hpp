// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "numerics/bits.hpp"
#include "numerics/moments.hpp"

namespace openvc::numerics {

/// Runs the tasks of a step and returns when all are done: one thread here, a thread block on a GPU
/// (cuda/prepare/block_team.cuh). Tasks of a step are independent and each of them orders its own
/// operations, so the team changes no bit of what a rule computes.
template <int kColumns>
struct SerialTeamOf {
  /// Neighbouring columns that one task works on: what the compiler makes vectors of.
  static constexpr int kWidth = kColumns;
  static constexpr int kProductWidth = kColumns;

  template <class Task>
  [[gnu::always_inline]] OPENVC_HD constexpr void run(int tasks, const Task& task) const {
    for (int i = 0; i < tasks; ++i) task(i);
  }

  /// Moments of a tensor in memory that is near to the team.
  template <int kDim>
  [[nodiscard]] OPENVC_HD constexpr const MomentsOf<kDim>& fetch(
      const MomentsOf<kDim>& moments) const {
    return moments;
  }
};
using SerialTeam = SerialTeamOf<16>;

}  // namespace openvc::numerics
