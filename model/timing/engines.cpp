// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "timing/simulation.hpp"

namespace openvc::timing {

void Replay::steal(const TraceWarp& place) {
  for (auto& [key, engine] : engines_) {
    if (std::get<1>(key) != place.block || std::get<2>(key) != place.scheduler) continue;
    if (!engine.queue.empty()) engine.stolen += engine.constants->fma_stolen.value;
  }
}

Engine& Replay::engine_of(const std::string& name, const TraceWarp& warp) {
  const EngineConstants& constants = machine_.engines.at(name);
  const int block = constants.scope == Scope::chip ? 0 : warp.block;
  const int scheduler = constants.scope == Scope::scheduler ? warp.scheduler : -1;
  Engine& engine = engines_[{name, block, scheduler}];
  if (engine.constants == nullptr) {
    engine.constants = &constants;
    engine.unit = static_cast<int>(timeline_.units.size());
    timeline_.units.push_back({name, block, scheduler, true});
    by_unit_[engine.unit] = &engine;
  }
  return engine;
}

bool Replay::start(int index, const Step& step) {
  const std::string& name = trace_.names[static_cast<std::size_t>(step.name)];
  const OperationConstants& operation = machine_.operations.at(name);
  Engine& engine = engine_of(operation.engine, source(index));
  const auto depth = static_cast<std::size_t>(engine.constants->depth.value);
  if (depth > 0 && engine.queue.size() >= depth) {
    engine.blocked.push_back(index);
    return false;
  }
  Warp& warp = at(index);
  double clocks = operation.clocks.value * step.amount;
  if (std::string_view(operation.clocks.unit) == "clocks/byte" && machine_.shared_rate.value > 0) {
    clocks = std::max(clocks, step.amount * options_.busy_blocks / machine_.shared_rate.value);
  }
  ++warp.open.running;
  engine.queue.push_back({index, warp.first_group + static_cast<int>(warp.groups.size()), clocks,
                          operation.latency.value, step.name, warp.cause, &step.signals});
  warp.ready = now_ + operation.issue.value;
  if (engine.queue.size() == 1) begin(engine);
  return true;
}

void Replay::begin(Engine& engine) {
  const Operation& operation = engine.queue.front();
  const bool follows = engine.last >= 0 && activity(engine.last).end >= now_;
  engine.activity = add({.kind = Activity::Kind::operation,
                         .unit = engine.unit,
                         .name = operation.name,
                         .begin = now_,
                         .end = now_ + operation.clocks,
                         .cause = follows ? engine.last : operation.cause});
  engine.stolen = 0;
  post({.time = now_ + operation.clocks, .kind = Event::Kind::engine, .index = engine.unit});
}

void Replay::finish(int unit) {
  Engine& engine = *by_unit_.at(unit);
  if (engine.stolen > 0) {
    post({.time = now_ + std::exchange(engine.stolen, 0.0),
          .kind = Event::Kind::engine,
          .index = unit});
    return;
  }
  const Operation operation = engine.queue.front();
  engine.queue.pop_front();
  if (engine.constants->turns == Turns::same_warp) bring_forward(engine.queue, operation.warp);
  activity(engine.activity).end = now_;
  engine.last = engine.activity;
  const double end = now_ + operation.latency;
  const int hand_over =
      add({.kind = Activity::Kind::hand_over,
           .unit = unit,
           .name = name_index("latency of " +
                              timeline_.names[static_cast<std::size_t>(operation.name)]),
           .begin = now_,
           .end = end,
           .cause = engine.last});
  for (const Signal& signal : *operation.signals) {
    post({.time = end,
          .kind = Event::Kind::signal,
          .index = signal.barrier,
          .signal = signal,
          .activity = hand_over});
  }
  post({.time = end,
        .kind = Event::Kind::group,
        .index = operation.warp,
        .activity = hand_over,
        .group = operation.group});
  if (!engine.queue.empty()) begin(engine);
  if (!engine.blocked.empty()) {
    const int warp = engine.blocked.front();
    engine.blocked.pop_front();
    wake(warp, now_, engine.last);
  }
}

void Replay::finish_group(int index, int number, int cause) {
  Warp& warp = at(index);
  const auto place = static_cast<std::size_t>(number - warp.first_group);
  Group& group = place < warp.groups.size() ? warp.groups[place] : warp.open;
  --group.running;
  if (warp.waits_for_groups < 0 || !drained(warp, warp.waits_for_groups)) return;
  warp.waits_for_groups = -1;
  wake(index, now_ + machine_.group_wake.value, cause);
}

}  // namespace openvc::timing
