// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "timing/machine_constants.hpp"
#include "timing/trace.hpp"

// When a trace happens on a machine: a deterministic simulation of discrete events.
namespace openvc::timing {

/// A trace that no machine could execute; the message names the place.
class TraceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Something that takes time. Its cause is what had to end before it could begin.
struct Activity {
  enum class Kind { work, operation, hand_over };
  Kind kind = Kind::work;
  int unit = 0;  // warp, or engine: index into Timeline::units
  int name = 0;  // index into Timeline::names
  double begin = 0;
  double end = 0;
  int cause = -1;
  double slots = 0;    // of work: issued
  double stalled = 0;  // of work: by latencies of its own instructions
};

struct Mark {
  int warp = 0;
  int name = 0;
  double time = 0;
  int activity = -1;  // that ended there
};

struct Unit {
  std::string name;
  int block = 0;
  int scheduler = -1;  // of warps and of engines that belong to one
  bool is_engine = false;
};

struct Timeline {
  std::string machine;  // its name
  std::string status;   // whether it is calibrated
  std::vector<std::string> names;
  std::vector<Unit> units;  // the warps of the trace in order, then engines
  std::vector<Activity> activities;
  std::vector<Mark> marks;
  double clocks = 0;  // until everything has ended
};

struct ReplayOptions {
  int busy_blocks = 1;  // of the chip: they share the rate of L2
};

Timeline replay(const Trace& trace, const MachineConstants& machine,
                const ReplayOptions& options = {});

}  // namespace openvc::timing
