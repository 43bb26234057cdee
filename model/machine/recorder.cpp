// SPDX-License-Identifier: BSD-3-Clause
#include "machine/recorder.hpp"

#include "machine/cluster.hpp"

namespace openvc::model {

InstructionCounts* instruction_counts = nullptr;

namespace {

Recorder* g_recorder = nullptr;

}  // namespace

void set_recorder(Recorder* recorder) { g_recorder = recorder; }

Recorder* recorder() {
  if (g_recorder == nullptr || cluster().block(0).index != 0) return nullptr;
  return g_recorder;
}

}  // namespace openvc::model
