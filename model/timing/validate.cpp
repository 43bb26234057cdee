// SPDX-License-Identifier: BSD-3-Clause
#include "timing/validate.hpp"

#include <cstddef>
#include <string>

#include "timing/replay.hpp"

namespace openvc::timing {
namespace {

std::string known_operations(const MachineConstants& machine) {
  std::string text;
  for (const auto& [name, operation] : machine.operations) {
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

class Validator {
 public:
  Validator(const Trace& trace, const MachineConstants& machine)
      : trace_(trace), machine_(machine) {}

  void check() {
    for (const TraceBarrier& barrier : trace_.barriers) {
      if (barrier.arrivals >= 1) continue;
      throw TraceError(trace_.name + ": barrier " + barrier.name + ": " +
                       std::to_string(barrier.arrivals) + " arrivals a phase; expected 1 or more");
    }
    for (const TraceWarp& warp : trace_.warps) {
      if (warp.scheduler < 0 || warp.scheduler >= machine_.schedulers) {
        throw TraceError(trace_.name + ": " + warp.role + ": scheduler " +
                         std::to_string(warp.scheduler) + "; expected one of the " +
                         std::to_string(machine_.schedulers) + " of " + machine_.name);
      }
      int open = 0;
      for (std::size_t i = 0; i < warp.steps.size(); ++i) {
        check_step(warp, warp.steps[i], i);
        if (warp.steps[i].kind == Step::Kind::commit) open = 0;
        // A copy tells barriers; nobody waits for its group.
        if (warp.steps[i].kind == Step::Kind::start && warp.steps[i].signals.empty()) ++open;
      }
      if (open > 0) {
        throw TraceError(trace_.name + ": " + warp.role + ": " + std::to_string(open) +
                         " operations are never committed and signal nothing; expected a commit");
      }
    }
  }

 private:
  void check_step(const TraceWarp& warp, const Step& step, std::size_t index) const {
    const auto fail = [&](const std::string& text) {
      throw TraceError(trace_.name + ": " + warp.role + ", step " + std::to_string(index) + ": " +
                       text);
    };
    const auto check_barrier = [&](int barrier) {
      if (barrier >= 0 && static_cast<std::size_t>(barrier) < trace_.barriers.size()) return;
      fail("barrier " + std::to_string(barrier) + "; the trace has " +
           std::to_string(trace_.barriers.size()));
    };
    switch (step.kind) {
      case Step::Kind::work:
        for (const double count : step.work) {
          if (!(count >= 0)) fail("a negative number of instructions");
        }
        break;
      case Step::Kind::wait:
      case Step::Kind::arrive:
        check_barrier(step.barrier);
        if (step.count < 0) fail("a negative number of phases or arrivals");
        break;
      case Step::Kind::start: {
        const std::string& name = trace_.names.at(static_cast<std::size_t>(step.name));
        const auto found = machine_.operations.find(name);
        if (found == machine_.operations.end()) {
          fail("operation '" + name + "'; " + machine_.name + " knows " +
               known_operations(machine_));
        }
        if (!machine_.engines.contains(found->second.engine)) {
          fail("operation '" + name + "' is of engine '" + found->second.engine + "', which " +
               machine_.name + " does not have");
        }
        if (!(step.amount > 0)) fail("an amount of 0 or less of '" + name + "'");
        for (const Signal& signal : step.signals) check_barrier(signal.barrier);
        break;
      }
      case Step::Kind::wait_groups:
        if (step.count < 0) fail("waits for a negative number of groups");
        break;
      case Step::Kind::commit:
      case Step::Kind::mark:
        break;
    }
  }

  const Trace& trace_;
  const MachineConstants& machine_;
};

}  // namespace

void validate(const Trace& trace, const MachineConstants& machine) {
  Validator(trace, machine).check();
}

}  // namespace openvc::timing
