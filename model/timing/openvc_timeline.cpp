// SPDX-License-Identifier: BSD-3-Clause
//
// When the instructions, copies and products of a kernel happen on a machine, by the clock model
// (docs/machine_model.md).
//
//   openvc_timeline [--trace dense] [--machine h200] [--blocks 32] [--busy-blocks N]
//                   [--perfetto FILE.json] [--svg FILE.svg]
//   openvc_timeline --list                 what --trace knows
//   openvc_timeline --clocks [--blocks 32]     clocks a block of all of them, a line each
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>

#include "timing/report.hpp"
#include "timing/traces.hpp"

namespace {

using namespace openvc::timing;

struct Options {
  std::string trace = "dense";
  std::string machine;  // empty: the one that the trace is of
  std::string perfetto;
  std::string svg;
  int blocks = 32;
  int busy_blocks = 0;  // 0: as the trace has it
  bool list = false;
  bool clocks = false;
};

int to_count(const std::string& name, const std::string& text) {
  std::size_t end = 0;
  int value = 0;
  try {
    value = std::stoi(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  if (end != text.size() || value < 1) {
    throw std::invalid_argument(name + ": '" + text + "'; expected a number from 1 on");
  }
  return value;
}

Options parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string name = words[i];
    if (name == "--list" || name == "--clocks") {
      (name == "--list" ? options.list : options.clocks) = true;
      continue;
    }
    const bool is_known = name == "--trace" || name == "--machine" || name == "--perfetto" ||
                          name == "--svg" || name == "--blocks" || name == "--busy-blocks";
    if (!is_known) {
      throw std::invalid_argument(name +
                                  ": no option; expected --trace, --machine, --blocks, "
                                  "--busy-blocks, --perfetto, --svg, --list or --clocks");
    }
    if (i + 1 == count) throw std::invalid_argument(name + ": a value is missing");
    const std::string value = words[++i];
    if (name == "--trace") options.trace = value;
    if (name == "--machine") options.machine = value;
    if (name == "--perfetto") options.perfetto = value;
    if (name == "--svg") options.svg = value;
    if (name == "--blocks") options.blocks = to_count(name, value);
    if (name == "--busy-blocks") options.busy_blocks = to_count(name, value);
  }
  return options;
}

void write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(path + ": cannot be written");
}

Timeline simulate(const TraceSource& source, const Options& options) {
  const MachineConstants& machine =
      machine_constants(options.machine.empty() ? source.machine : options.machine);
  return replay(
      source.make(options.blocks), machine,
      {.busy_blocks = options.busy_blocks > 0 ? options.busy_blocks : source.busy_blocks});
}

void run(const Options& options) {
  if (options.list) {
    for (const TraceSource& source : trace_sources()) {
      std::printf("%-28s %-8s %s\n", source.name.c_str(), source.machine.c_str(),
                  source.what.c_str());
    }
    return;
  }
  if (options.clocks) {
    for (const TraceSource& source : trace_sources()) {
      const Timeline timeline = simulate(source, options);
      std::printf("%-28s %-8s %9.1f\n", source.name.c_str(), timeline.machine.c_str(),
                  steady_state(timeline, source.block_mark, options.blocks / 4).clocks_per_block);
    }
    return;
  }
  const TraceSource& source = trace_source(options.trace);
  const Timeline timeline = simulate(source, options);
  const Steady steady = steady_state(timeline, source.block_mark, options.blocks / 4);
  const std::string title = source.name + " on " + timeline.machine + " (" + timeline.status + ")";
  std::printf("%s\n%s", title.c_str(), describe(timeline, steady).c_str());
  if (!options.perfetto.empty()) write(options.perfetto, perfetto_json(timeline, title));
  if (!options.svg.empty()) {
    constexpr double kShown = 4;  // blocks
    const double begin = steady.window.begin;
    write(options.svg,
          svg_page(timeline, {begin, begin + kShown * steady.clocks_per_block}, title));
  }
}

}  // namespace

int main(int count, char** words) {
  try {
    run(parse(count, words));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "openvc_timeline: %s\n", error.what());
    return 1;
  }
  return 0;
}
