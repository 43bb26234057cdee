// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "machine/machine.hpp"

namespace openvc::model {

inline constexpr Schedule kAllSchedules[] = {
    {0, Turns::in_order, Engines::eager},       {0, Turns::in_order, Engines::lazy},
    {1, Turns::random, Engines::lazy},          {2, Turns::random, Engines::random},
    {3, Turns::one_warp_last, Engines::random}, {4, Turns::one_warp_last, Engines::lazy},
    {5, Turns::one_block_first, Engines::lazy}, {6, Turns::one_block_first, Engines::random},
};

/// The message of the fault that a kernel ends with; "" without one.
inline std::string fault_of(Grid grid, const Schedule& schedule,
                            const std::function<void()>& kernel) {
  grid.kernel = "test kernel";
  set_schedule(schedule);
  std::string message;
  try {
    launch(grid, kernel);
  } catch (const Fault& fault) {
    message = fault.what();
  }
  set_schedule({});
  return message;
}

/// The same of one block, by turns of a seed.
inline std::string fault_of(unsigned threads, const std::function<void()>& kernel,
                            std::uint64_t seed = 0) {
  Grid grid;
  grid.threads = threads;
  const Schedule schedule = seed == 0 ? Schedule{} : Schedule{seed, Turns::random, Engines::lazy};
  return fault_of(grid, schedule, kernel);
}

}  // namespace openvc::model
