// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "study/error_study.hpp"

namespace openvc::study {
namespace {

/// Exactly `steps` extra k-steps in every head: no plan reaches an error of zero.
NumericOptions fixed_columns(NumericOptions options, int steps, Choice rotation) {
  options.max_extra_steps = steps;
  options.score_error_target = 0.0f;
  options.rotation = rotation;
  return options;
}

}  // namespace

std::vector<Variant> option_variants(const NumericOptions& base) {
  std::vector<Variant> variants;
  const auto add = [&](std::string id, std::string group, std::string label,
                       const NumericOptions& options) {
    variants.push_back({std::move(id), std::move(group), std::move(label), options});
  };
  // The option's value is changed by a statement, so that each line below reads as its difference.
  const auto vary = [&](std::string id, std::string group, std::string label, auto change) {
    NumericOptions options = base;
    change(options);
    add(std::move(id), std::move(group), std::move(label), options);
  };

  vary("smooth_keys_off", "K smoothing", "K mean kept",
       [](NumericOptions& o) { o.smooth_keys = false; });

  vary("rotation_never", "Rotation, residual columns", "planned columns on channels, no rotation",
       [](NumericOptions& o) { o.rotation = Choice::never; });
  vary("rotation_always", "Rotation, residual columns", "rotation, no columns",
       [](NumericOptions& o) {
         o.rotation = Choice::always;
         o.max_extra_steps = 0;
       });
  for (const int steps : {0, 1, 2, 4}) {
    add(fmt::format("columns_{}", steps), "Rotation, residual columns",
        steps == 0 ? "no columns, no rotation"
                   : fmt::format("{} channels in every head", 16 * steps),
        fixed_columns(base, steps, Choice::never));
  }
  for (const int steps : {1, 2, 4}) {
    add(fmt::format("axes_{}", steps), "Rotation, residual columns",
        fmt::format("{} principal axes in every head", 16 * steps),
        fixed_columns(base, steps, Choice::always));
  }
  for (const float target : {0.1f, 0.2f, 0.32f, 0.5f}) {
    vary(fmt::format("score_target_{:.2f}", target), "Rotation, residual columns",
         fmt::format("per head, score target {:.2f}", target), [&](NumericOptions& o) {
           o.score_error_target = target;
           o.max_extra_steps = 4;
         });
  }

  vary("smooth_values_off", "V", "V mean kept", [](NumericOptions& o) { o.smooth_values = false; });
  vary("value_scale_per_head", "V", "one V scale per head",
       [](NumericOptions& o) { o.value_scale = ValueScale::per_head; });
  return variants;
}

double added_work(const HeadPlan& plan) {
  constexpr double kPerExtraStep = 0.125;  // one k-step more than the eight of QK and PV
  return kPerExtraStep * plan.extra_steps;
}

}  // namespace openvc::study
