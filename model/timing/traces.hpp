// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "timing/trace.hpp"

namespace openvc::timing {

/// A trace that programs know by name.
struct TraceSource {
  std::string name;
  std::string machine;     // that it is of
  std::string block_mark;  // what ends a block of keys
  std::string what;
  int busy_blocks;  // thread blocks of the chip that load at a time
  std::function<Trace(int key_blocks)> make;
};

/// Variants of the Hopper kernel, recorded, then schedules that are written by hand.
const std::vector<TraceSource>& trace_sources();
/// Throws std::invalid_argument, which lists the names.
const TraceSource& trace_source(std::string_view name);

}  // namespace openvc::timing
