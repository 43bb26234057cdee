// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "timing/replay.hpp"

// What a timeline says: clocks a block, who is busy, and what everything waits for.
namespace openvc::timing {

/// Part of a timeline. Its middle is steady where begin and end are left out.
struct Window {
  double begin = 0;
  double end = 0;
};

struct Steady {
  Window window;
  double blocks = 0;
  double clocks_per_block = 0;
  int last_mark = -1;  // index into Timeline::marks, at the end of the window
};

/// Between two marks of this name of one warp, the first of those that have it: after `skipped`
/// blocks, and at least so many before the last. Throws TraceError if there are not as many.
Steady steady_state(const Timeline& timeline, const std::string& mark, int skipped);

struct Share {
  std::string unit;
  double busy = 0;  // of the window, averaged over all units of this name
};
/// Engines, then the issue slots of schedulers that have work.
std::vector<Share> busy_shares(const Timeline& timeline, const Window& window);

struct PathPart {
  std::string what;
  double clocks = 0;
};
/// What the end of a steady state had to wait for, back to its beginning, the longest part first:
/// each piece of time belongs to the last thing that had to end before the next could begin.
std::vector<PathPart> critical_path(const Timeline& timeline, const Steady& steady);

/// All of the above as text.
std::string describe(const Timeline& timeline, const Steady& steady);

/// Trace events as Perfetto and chrome://tracing read them; a clock is shown as a microsecond.
std::string perfetto_json(const Timeline& timeline, const std::string& title);
/// A page with the warps and engines of block 0 in a window.
std::string svg_page(const Timeline& timeline, const Window& window, const std::string& title);

}  // namespace openvc::timing
