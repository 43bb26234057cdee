// SPDX-License-Identifier: BSD-3-Clause
// A tile is empty, partial or full: a plain if would take two of them for one.
// expect: could not convert|cannot convert|not contextually convertible|is not convertible
#include "schedule/mask.hpp"

bool needs_work(const openvc::schedule::Problem& problem) {
#ifdef OPENVC_WRONG
  if (tile_class(problem, 0, 0, 0)) return true;
  return false;
#else
  return tile_class(problem, 0, 0, 0) != openvc::schedule::TileClass::empty;
#endif
}
