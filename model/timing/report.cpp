// SPDX-License-Identifier: BSD-3-Clause
#include "timing/report.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>

namespace openvc::timing {
namespace {

double overlap(const Activity& activity, const Window& window) {
  return std::max(0.0, std::min(activity.end, window.end) - std::max(activity.begin, window.begin));
}

std::string number(double x, int digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f", digits, x);
  return text;
}

const std::string& name_of(const Timeline& timeline, int name) {
  return timeline.names[static_cast<std::size_t>(name)];
}

const Unit& unit_of(const Timeline& timeline, const Activity& activity) {
  return timeline.units[static_cast<std::size_t>(activity.unit)];
}

}  // namespace

Steady steady_state(const Timeline& timeline, const std::string& mark, int skipped) {
  std::vector<int> found;
  for (std::size_t i = 0; i < timeline.marks.size(); ++i) {
    const Mark& candidate = timeline.marks[i];
    if (name_of(timeline, candidate.name) != mark) continue;
    if (!found.empty() &&
        timeline.marks[static_cast<std::size_t>(found.front())].warp != candidate.warp) {
      continue;
    }
    found.push_back(static_cast<int>(i));
  }
  const int intervals = static_cast<int>(found.size()) - 1 - 2 * skipped;
  // Pipelines of two buffers repeat every other block.
  const int blocks = intervals > 1 ? intervals / 2 * 2 : intervals;
  if (blocks < 1) {
    throw TraceError("a steady state of '" + mark + "': " + std::to_string(found.size()) +
                     " marks; expected more than " + std::to_string(2 * skipped + 1));
  }
  const auto time = [&](int index) {
    return timeline.marks[static_cast<std::size_t>(found[static_cast<std::size_t>(index)])].time;
  };
  Steady steady;
  steady.window = {time(skipped), time(skipped + blocks)};
  steady.blocks = blocks;
  steady.clocks_per_block = (steady.window.end - steady.window.begin) / blocks;
  steady.last_mark = found[static_cast<std::size_t>(skipped + blocks)];
  return steady;
}

std::vector<Share> busy_shares(const Timeline& timeline, const Window& window) {
  struct Sum {
    double clocks = 0;
    std::set<int> units;
  };
  std::map<std::string, Sum> engines;
  Sum issue;
  for (const Activity& activity : timeline.activities) {
    const double clocks = overlap(activity, window);
    const Unit& unit = unit_of(timeline, activity);
    if (activity.kind == Activity::Kind::operation) {
      Sum& sum = engines[unit.name];
      sum.clocks += clocks;
      sum.units.insert(activity.unit);
    } else if (activity.kind == Activity::Kind::work) {
      const double whole = activity.end - activity.begin;
      issue.clocks += whole > 0 ? activity.slots * clocks / whole : 0;
      constexpr int kMostSchedulers = 64;
      issue.units.insert(unit.block * kMostSchedulers + unit.scheduler);
    }
  }
  const double length = window.end - window.begin;
  std::vector<Share> shares;
  for (const auto& [name, sum] : engines) {
    shares.push_back({name, sum.clocks / (length * static_cast<double>(sum.units.size()))});
  }
  if (!issue.units.empty()) {
    shares.push_back(
        {"issue slots", issue.clocks / (length * static_cast<double>(issue.units.size()))});
  }
  return shares;
}

std::vector<PathPart> critical_path(const Timeline& timeline, const Steady& steady) {
  std::map<std::string, double> parts;
  double until = steady.window.end;
  int index = timeline.marks[static_cast<std::size_t>(steady.last_mark)].activity;
  const auto charge = [&](const std::string& what, double from) {
    const double begin = std::max(from, steady.window.begin);
    if (until > begin) parts[what] += until - begin;
    until = std::min(until, begin);
  };
  while (index >= 0 && until > steady.window.begin) {
    const Activity& activity = timeline.activities[static_cast<std::size_t>(index)];
    const std::string& name = name_of(timeline, activity.name);
    charge("wake-up and waits for a place", activity.end);
    if (activity.kind == Activity::Kind::work) {
      // Of a piece of work the slots are its own; what is left is latency and the neighbour.
      const double own = std::min(activity.slots, activity.end - activity.begin);
      const double stalled = std::min(activity.stalled, activity.end - activity.begin - own);
      charge(name + ": a busy scheduler or pipe", activity.begin + own + stalled);
      charge(name + ": latency", activity.begin + own);
    }
    charge(name, activity.begin);
    index = activity.cause;
  }
  std::vector<PathPart> path;
  for (const auto& [what, clocks] : parts) path.push_back({what, clocks});
  std::ranges::stable_sort(path, [](const auto& a, const auto& b) { return a.clocks > b.clocks; });
  return path;
}

std::string describe(const Timeline& timeline, const Steady& steady) {
  const double length = steady.window.end - steady.window.begin;
  std::string text = number(steady.clocks_per_block, 1) + " clocks a block (" + timeline.machine +
                     ", " + timeline.status + "), " + number(timeline.clocks, 0) +
                     " in all\n\nbusy\n";
  for (const Share& share : busy_shares(timeline, steady.window)) {
    text += "  " + number(100 * share.busy, 1) + " %  " + share.unit + "\n";
  }
  text += "\ncritical path, clocks a block\n";
  for (const PathPart& part : critical_path(timeline, steady)) {
    const double clocks = part.clocks / steady.blocks;
    if (part.clocks < 0.005 * length) break;
    text += "  " + number(clocks, 1) + "  " + part.what + "\n";
  }
  return text;
}

}  // namespace openvc::timing
