// SPDX-License-Identifier: BSD-3-Clause
#include "timing/trace.hpp"

#include <algorithm>
#include <utility>

namespace openvc::timing {

const char* pipe_name(Pipe pipe) {
  constexpr const char* kNames[kPipes] = {"fma",      "fma_pair", "half",    "half_add",
                                          "maximum",  "alu",      "convert", "special",
                                          "exchange", "vote",     "other"};
  return kNames[static_cast<std::size_t>(pipe)];
}

int Trace::name_index(const std::string& text) {
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return static_cast<int>(found - names.begin());
  names.push_back(text);
  return static_cast<int>(names.size()) - 1;
}

int Trace::add_barrier(std::string barrier_name, int block, int arrivals) {
  barriers.push_back({std::move(barrier_name), block, arrivals});
  return static_cast<int>(barriers.size()) - 1;
}

Writer::Writer(Trace& trace, std::string role, int block, int scheduler)
    : trace_(trace), warp_(trace.warps.size()) {
  trace.warps.push_back({std::move(role), block, scheduler, {}});
}

Step& Writer::add(Step::Kind kind) {
  auto& steps = trace_.warps[warp_].steps;
  steps.push_back({.kind = kind, .work = {}, .signals = {}});
  return steps.back();
}

Writer& Writer::work(Pipe pipe, double instructions) {
  auto& steps = trace_.warps[warp_].steps;
  Step& step = !steps.empty() && steps.back().kind == Step::Kind::work ? steps.back()
                                                                       : add(Step::Kind::work);
  of(step.work, pipe) += instructions;
  return *this;
}

Writer& Writer::wait(int barrier, std::int64_t phases) {
  Step& step = add(Step::Kind::wait);
  step.barrier = barrier;
  step.count = phases;
  return *this;
}

Writer& Writer::arrive(int barrier, double bytes, int arrivals) {
  Step& step = add(Step::Kind::arrive);
  step.barrier = barrier;
  step.count = arrivals;
  step.amount = bytes;
  return *this;
}

Writer& Writer::start(const std::string& operation, double amount, std::vector<Signal> signals) {
  const int name = trace_.name_index(operation);
  Step& step = add(Step::Kind::start);
  step.name = name;
  step.amount = amount;
  step.signals = std::move(signals);
  return *this;
}

Writer& Writer::commit() {
  add(Step::Kind::commit);
  return *this;
}

Writer& Writer::wait_groups(int pending) {
  add(Step::Kind::wait_groups).count = pending;
  return *this;
}

Writer& Writer::mark(const std::string& name) {
  const int index = trace_.name_index(name);
  add(Step::Kind::mark).name = index;
  return *this;
}

}  // namespace openvc::timing
