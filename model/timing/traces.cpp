// SPDX-License-Identifier: BSD-3-Clause
#include "timing/traces.hpp"

#include <stdexcept>

#include "timing/machine_constants.hpp"
#include "timing/record_kernels.hpp"
#include "timing/schedules/blackwell.hpp"

namespace openvc::timing {
namespace {

/// Of the launches that the variants are held to (benchmarks/cuda/low_work.cu).
constexpr int kMeasuredBlocks = 8;

std::vector<TraceSource> all_sources() {
  std::vector<TraceSource> sources;
  for (const low_work::Variant& variant : low_work::variants()) {
    sources.push_back({variant.name, "h200", kHopperBlockMark, "the Hopper kernel, recorded",
                       kMeasuredBlocks,
                       [&variant](int blocks) { return record_hopper(variant, blocks); }});
  }
  sources.push_back({"blackwell", "b200", kBlackwellBlockMark, "the Blackwell kernel, recorded",
                     b200().multiprocessors, record_blackwell});
  const auto add = [&](BlackwellSchedule schedule, const char* what) {
    sources.push_back({schedule.name, "b200", "block", what, b200().multiprocessors,
                       [schedule](int blocks) { return write_blackwell(schedule, blocks); }});
  };
  add({.name = "reference", .score_buffers = 0},
      "the reference's schedule: one score buffer for both query stages");
  add({.name = "half", .score_buffers = 0, .half_scores = true, .value_columns = 144},
      "the same with binary16 scores and N = 144");
  add({.name = "half_ahead",
       .score_buffers = 0,
       .scores_ahead = true,
       .half_scores = true,
       .value_columns = 144},
      "one score buffer for both query stages, Q K ahead of P V");
  add({.name = "half_own", .score_buffers = 1, .half_scores = true, .value_columns = 144},
      "a score buffer for each query stage, which tensor memory has no room for");
  add({.name = "half_one_stage_ahead",
       .query_stages = 1,
       .score_buffers = 2,
       .scores_ahead = true,
       .half_scores = true,
       .value_columns = 144},
      "one query stage of 128 rows, two score buffers, Q K ahead of P V");
  add({.name = "half_own_ahead",
       .score_buffers = 2,
       .scores_ahead = true,
       .half_scores = true,
       .value_columns = 144},
      "two query stages and two score buffers each, which tensor memory has no room for");
  add({.name = "half_own_pair",
       .score_buffers = 1,
       .half_scores = true,
       .value_columns = 144,
       .pair = true},
      "the same, cta_group::2");
  return sources;
}

}  // namespace

const std::vector<TraceSource>& trace_sources() {
  static const std::vector<TraceSource> sources = all_sources();
  return sources;
}

const TraceSource& trace_source(std::string_view name) {
  std::string known;
  for (const TraceSource& source : trace_sources()) {
    if (source.name == name) return source;
    known += (known.empty() ? "" : ", ") + source.name;
  }
  throw std::invalid_argument("trace: '" + std::string(name) + "'; expected one of " + known);
}

}  // namespace openvc::timing
