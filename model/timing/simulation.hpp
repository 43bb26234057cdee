// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "timing/replay.hpp"

// The state of a replay: replay.cpp has what warps and barriers do, engines.cpp what engines do.
namespace openvc::timing {

struct Group {
  int running = 0;
  int last = -1;  // activity
};

struct Warp {
  std::size_t step = 0;
  Work left{};  // of the step's instructions
  Work total{};
  Work carried{};  // parts of instructions from steps before
  bool begun = false;
  int activity = -1;  // that is being done
  int cause = -1;     // the last one that has ended
  double ready = 0;
  std::deque<Group> groups;  // committed, the oldest first
  Group open;
  int waits_for_groups = -1;  // at most so many may run
  int first_group = 0;        // number of the oldest
};

struct Barrier {
  int pending = 0;
  double bytes = 0;
  std::int64_t phases = 0;
  std::vector<std::pair<int, std::int64_t>> waiting;  // warp, phases
  int last = -1;                                      // activity that completed the phase
};

struct Operation {
  int warp = 0;
  int group = 0;  // its number among those of the warp
  double clocks = 0;
  double latency = 0;
  int name = 0;
  int cause = -1;
  const std::vector<Signal>* signals = nullptr;
};

struct Engine {
  const EngineConstants* constants = nullptr;
  int unit = 0;
  std::deque<Operation> queue;  // the first is running
  std::deque<int> blocked;      // warps that wait for a place
  int activity = -1;
  int last = -1;
  double stolen = 0;
};

struct Scheduler {
  double free = 0;
  std::array<double, kPipes> unit_free{};
};

struct Event {
  enum class Kind { warp, engine, signal, group };
  double time = 0;
  std::int64_t order = 0;
  Kind kind = Kind::warp;
  int index = 0;  // warp, engine, barrier, warp
  Signal signal{};
  int activity = -1;
  int group = 0;
  bool operator>(const Event& other) const {
    return std::tie(time, order) > std::tie(other.time, other.order);
  }
};

class Replay {
 public:
  Replay(const Trace& trace, const MachineConstants& machine, const ReplayOptions& options)
      : trace_(trace), machine_(machine), options_(options), warps_(trace.warps.size()) {
    timeline_.machine = machine.name;
    timeline_.status = machine.status;
    timeline_.names = trace.names;
    for (const TraceWarp& warp : trace.warps) {
      timeline_.units.push_back({warp.role, warp.block, warp.scheduler, false});
    }
    for (const TraceBarrier& barrier : trace.barriers) {
      barriers_.push_back({.pending = barrier.arrivals, .waiting = {}});
    }
  }

  Timeline run();

 private:
  using Kind = Step::Kind;

  void post(Event event) {
    event.order = order_++;
    events_.push(std::move(event));
  }
  void wake(int warp, double time, int cause) {
    if (cause >= 0) at(warp).cause = cause;
    post({.time = time, .kind = Event::Kind::warp, .index = warp});
  }
  Warp& at(int warp) { return warps_[static_cast<std::size_t>(warp)]; }
  [[nodiscard]] const TraceWarp& source(int warp) const {
    return trace_.warps[static_cast<std::size_t>(warp)];
  }
  int add(Activity activity) {
    timeline_.activities.push_back(activity);
    return static_cast<int>(timeline_.activities.size()) - 1;
  }
  Activity& activity(int index) { return timeline_.activities[static_cast<std::size_t>(index)]; }
  int name_index(const std::string& text) {
    const auto [found, is_new] = names_.try_emplace(text, static_cast<int>(timeline_.names.size()));
    if (is_new) timeline_.names.push_back(text);
    return found->second;
  }

  /// Instructions of a step: its own, and those that starting something takes.
  [[nodiscard]] Work instructions(const Step& step) const;

  void advance(int index);

  /// Whether all instructions of the step have been issued; else the warp has an event.
  bool issue(int index);

  /// The class whose next instruction can be issued first; of those that can, the one that is least
  /// advanced. -1: none is left.
  int choose(const Warp& warp, const Scheduler& scheduler, double& earliest) const;

  /// An FFMA takes register ports from the products of its scheduler.
  void steal(const TraceWarp& place);

  /// What a step does when its instructions are issued. False: the warp waits and comes back.
  bool perform(int index, const Step& step);

  /// Takes away the oldest groups that have ended. Whether at most `most` are left.
  static bool drained(Warp& warp, std::int64_t most) {
    while (!warp.groups.empty() && warp.groups.front().running == 0) {
      warp.groups.pop_front();
      ++warp.first_group;
    }
    return static_cast<std::int64_t>(warp.groups.size()) <= most;
  }

  Engine& engine_of(const std::string& name, const TraceWarp& warp);

  bool start(int index, const Step& step);

  void begin(Engine& engine);

  void finish(int unit);

  /// The first operation of the warp becomes the next; nothing if it has none.
  static void bring_forward(std::deque<Operation>& queue, int warp) {
    const auto found = std::ranges::find(queue, warp, &Operation::warp);
    if (found != queue.end()) std::rotate(queue.begin(), found, found + 1);
  }

  void finish_group(int index, int number, int cause);

  void count(int index, const Signal& signal, int cause);

  void expect_all_ended() const;

  /// The name of a barrier without its number.
  static std::string family(const std::string& name) { return name.substr(0, name.find('[')); }

  const Trace& trace_;
  const MachineConstants& machine_;
  const ReplayOptions options_;
  Timeline timeline_;
  std::map<std::string, int> names_;
  std::vector<Warp> warps_;
  std::vector<Barrier> barriers_;
  std::map<std::pair<int, int>, Scheduler> schedulers_;
  std::map<std::tuple<std::string, int, int>, Engine> engines_;
  std::map<int, Engine*> by_unit_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::int64_t order_ = 0;
  double now_ = 0;
};

}  // namespace openvc::timing
