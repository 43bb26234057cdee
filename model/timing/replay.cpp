// SPDX-License-Identifier: BSD-3-Clause
#include "timing/replay.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "timing/simulation.hpp"
#include "timing/validate.hpp"

namespace openvc::timing {

Timeline Replay::run() {
  for (std::size_t i = 0; i < warps_.size(); ++i) wake(static_cast<int>(i), 0, -1);
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    timeline_.clocks = now_;
    switch (event.kind) {
      case Event::Kind::warp:
        advance(event.index);
        break;
      case Event::Kind::engine:
        finish(event.index);
        break;
      case Event::Kind::signal:
        count(event.index, event.signal, event.activity);
        break;
      case Event::Kind::group:
        finish_group(event.index, event.group, event.activity);
        break;
    }
  }
  expect_all_ended();
  return std::move(timeline_);
}

Work Replay::instructions(const Step& step) const {
  Work work = step.work;
  switch (step.kind) {
    case Kind::wait:
      of(work, Pipe::other) += machine_.wait_slots.value;
      break;
    case Kind::arrive:
      of(work, Pipe::other) += machine_.arrive_slots.value;
      break;
    case Kind::commit:
    case Kind::wait_groups:
      of(work, Pipe::other) += machine_.group_slots.value;
      break;
    case Kind::start:
      of(work, Pipe::other) +=
          machine_.operations.at(trace_.names[static_cast<std::size_t>(step.name)]).slots.value;
      break;
    case Kind::work:
    case Kind::mark:
      break;
  }
  return work;
}

void Replay::advance(int index) {
  Warp& warp = at(index);
  const auto& steps = source(index).steps;
  while (warp.step < steps.size()) {
    const Step& step = steps[warp.step];
    if (!warp.begun) {
      const Work work = instructions(step);
      for (std::size_t p = 0; p < kPipes; ++p) {
        const double wanted = work[p] + warp.carried[p];
        warp.left[p] = std::floor(wanted);
        warp.carried[p] = wanted - warp.left[p];
      }
      warp.total = warp.left;
      warp.begun = true;
    }
    if (!issue(index)) return;
    if (!perform(index, step)) return;
    warp.begun = false;
    ++warp.step;
  }
}

bool Replay::issue(int index) {
  Warp& warp = at(index);
  while (true) {
    if (now_ < warp.ready) {
      wake(index, warp.ready, -1);
      return false;
    }
    const TraceWarp& place = source(index);
    Scheduler& scheduler = schedulers_[{place.block, place.scheduler}];
    double earliest = 0;
    const int chosen = choose(warp, scheduler, earliest);
    if (chosen < 0) {
      if (warp.activity >= 0) {
        activity(warp.activity).end = now_;
        warp.cause = std::exchange(warp.activity, -1);
      }
      return true;
    }
    if (warp.activity < 0) {
      warp.activity = add({.kind = Activity::Kind::work,
                           .unit = index,
                           .name = name_index("instructions of " + place.role),
                           .begin = now_,
                           .end = now_,
                           .cause = warp.cause});
    }
    if (earliest > now_) {
      wake(index, earliest, -1);
      return false;
    }
    const PipeConstants& pipe = machine_.pipes[static_cast<std::size_t>(chosen)];
    warp.left[static_cast<std::size_t>(chosen)] -= 1;
    scheduler.free = now_ + 1;
    scheduler.unit_free[static_cast<std::size_t>(pipe.unit)] = now_ + pipe.interval.value;
    warp.ready = now_ + 1 + pipe.stall.value;
    activity(warp.activity).slots += 1;
    activity(warp.activity).stalled += pipe.stall.value;
    if (chosen == static_cast<int>(Pipe::fma)) steal(place);
  }
}

int Replay::choose(const Warp& warp, const Scheduler& scheduler, double& earliest) const {
  int chosen = -1;
  double least = 0;
  for (std::size_t p = 0; p < kPipes; ++p) {
    if (warp.left[p] < 1) continue;
    const auto unit = static_cast<std::size_t>(machine_.pipes[p].unit);
    const double time = std::max({now_, scheduler.free, scheduler.unit_free[unit]});
    const double advanced = 1 - warp.left[p] / warp.total[p];
    if (chosen < 0 || std::tie(time, advanced) < std::tie(earliest, least)) {
      chosen = static_cast<int>(p);
      earliest = time;
      least = advanced;
    }
  }
  return chosen;
}

bool Replay::perform(int index, const Step& step) {
  Warp& warp = at(index);
  switch (step.kind) {
    case Kind::work:
      return true;
    case Kind::wait: {
      Barrier& barrier = barriers_[static_cast<std::size_t>(step.barrier)];
      if (barrier.phases >= step.count) return true;
      barrier.waiting.emplace_back(index, step.count);
      return false;
    }
    case Kind::arrive: {
      const TraceBarrier& barrier = trace_.barriers[static_cast<std::size_t>(step.barrier)];
      const bool is_near = barrier.block == source(index).block;
      const double latency = (is_near ? machine_.arrival : machine_.cluster_arrival).value;
      const int hand_over = add({.kind = Activity::Kind::hand_over,
                                 .unit = index,
                                 .name = name_index("arrivals at " + family(barrier.name)),
                                 .begin = now_,
                                 .end = now_ + latency,
                                 .cause = warp.cause});
      // The bytes of a phase are expected at once: a copy cannot be done before.
      barriers_[static_cast<std::size_t>(step.barrier)].bytes += step.amount;
      post({.time = now_ + latency,
            .kind = Event::Kind::signal,
            .index = step.barrier,
            .signal = {step.barrier, static_cast<int>(step.count), 0},
            .activity = hand_over});
      return true;
    }
    case Kind::start:
      return start(index, step);
    case Kind::commit:
      warp.groups.push_back(std::exchange(warp.open, {}));
      return true;
    case Kind::wait_groups:
      if (static_cast<int>(warp.groups.size()) <= step.count || drained(warp, step.count)) {
        return true;
      }
      warp.waits_for_groups = static_cast<int>(step.count);
      return false;
    case Kind::mark:
      timeline_.marks.push_back({index, step.name, now_, warp.cause});
      return true;
  }
  return true;
}

void Replay::count(int index, const Signal& signal, int cause) {
  Barrier& barrier = barriers_[static_cast<std::size_t>(index)];
  const TraceBarrier& of_trace = trace_.barriers[static_cast<std::size_t>(index)];
  barrier.pending -= signal.arrivals;
  barrier.bytes -= signal.bytes;
  if (barrier.pending < 0) {
    throw TraceError(trace_.name + ": barrier " + of_trace.name + ", phase " +
                     std::to_string(barrier.phases) + ": more arrivals than the " +
                     std::to_string(of_trace.arrivals) + " of a phase");
  }
  if (barrier.pending > 0 || barrier.bytes > 0) return;
  ++barrier.phases;
  barrier.pending = of_trace.arrivals;
  barrier.last = cause;
  std::erase_if(barrier.waiting, [&](const auto& waiting) {
    if (barrier.phases < waiting.second) return false;
    wake(waiting.first, now_ + machine_.wake.value, cause);
    return true;
  });
}

void Replay::expect_all_ended() const {
  std::string waiting;
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    const auto& steps = trace_.warps[i].steps;
    if (warps_[i].step >= steps.size()) continue;
    const Step& step = steps[warps_[i].step];
    waiting += "; " + trace_.warps[i].role + " of block " + std::to_string(trace_.warps[i].block) +
               ", step " + std::to_string(warps_[i].step) + ": ";
    if (step.kind == Kind::wait) {
      const auto barrier = static_cast<std::size_t>(step.barrier);
      waiting += "phase " + std::to_string(step.count) + " of " + trace_.barriers[barrier].name +
                 ", which has completed " + std::to_string(barriers_[barrier].phases);
    } else {
      waiting += "operations of an engine";
    }
  }
  if (!waiting.empty()) {
    throw TraceError(trace_.name + ": nobody can go on after " + std::to_string(now_) + " clocks" +
                     waiting);
  }
}

Timeline replay(const Trace& trace, const MachineConstants& machine, const ReplayOptions& options) {
  validate(trace, machine);
  return Replay(trace, machine, options).run();
}

}  // namespace openvc::timing
