// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/attention_pair.hpp"
#include "numerics/repair.hpp"

// Small problems whose outputs an H200 has written into a file (recorded_outputs.hpp).
namespace openvc::test {

struct RecordedProblem {
  std::string name;
  AttentionCase c;
  study::Tensors tensors;
};

/// V of which every key has a channel of its own: outputs are the probability codes of a block,
/// each times the same.
inline void give_keys_a_channel(study::OwnedTensor& v) {
  transform(v, [](auto, std::int64_t key, auto, std::int64_t channel, float) {
    return key == channel ? 1.0f : 0.0f;
  });
}

/// Each with what it is there for: rows of both blocks of a cluster and of one, ends of tiles,
/// every configuration, both rules of heads.
inline std::vector<RecordedProblem> recorded_problems() {
  std::vector<RecordedProblem> problems;
  const auto add = [&](const char* name, const AttentionCase& c) -> RecordedProblem& {
    return problems.emplace_back(name, c, make_tensors(c));
  };
  add("dense", make_case(1, 1, 150, 500));
  add("one key block", make_case(2, 1, 40, 128));
  add("odd lengths", make_case(1, 1, 67, 257));
  add("causal", make_case(1, 1, 150, 300, Mask::causal));
  add("causal, rows without keys", make_case(1, 1, 100, 70, Mask::causal));
  for (const int steps : {0, 1, 2, 4}) {
    AttentionCase c = make_case(1, 1, 70, 200);
    c.numerics = all_steps(steps);
    add(("steps " + std::to_string(steps)).c_str(), c);
    if (steps == 0) continue;
    c.problem.mask = Mask::causal;
    add(("causal, steps " + std::to_string(steps)).c_str(), c);
  }

  AttentionCase repaired = make_case(1, 1, 70, 300);
  repaired.problem.repair_rows = numerics::repair_row_count(0.2, repaired.problem.keys);
  add("repair", repaired);

  AttentionCase on_axes = make_case(1, 1, 40, 4200);
  on_axes.numerics.value_axes = Choice::always;
  transform(add("values on axes", on_axes).tensors.v,
            [](auto, auto, auto, std::int64_t channel, float x) {
              return channel % 21 == 4 ? 8.0f * x + 1.0f : x;
            });

  AttentionCase wide = make_case(1, 2, 70, 400);
  wide.numerics = all_steps(0);
  for (const Mask mask : {Mask::none, Mask::causal}) {
    constexpr float kGains[] = {30.0f, 3000.0f};
    wide.problem.mask = mask;
    transform(add(mask == Mask::none ? "wide heads" : "wide heads, causal", wide).tensors.q,
              [&](auto, auto, std::int64_t h, auto, float x) { return kGains[h] * x; });
  }

  AttentionCase selected = make_case(2, 1, 40, 500);
  selected.selected_keys = 384;
  add("selected keys", selected);

  AttentionCase half = make_case(1, 1, 70, 300);
  half.type = ElementType::float16;
  add("float16", half);

  AttentionCase probabilities = make_case(1, 1, 130, 128);
  probabilities.type = ElementType::float16;
  give_keys_a_channel(add("probabilities", probabilities).tensors.v);
  probabilities.numerics = all_steps(0);
  RecordedProblem& peaked = add("probabilities, wide head", probabilities);
  give_keys_a_channel(peaked.tensors.v);
  transform(peaked.tensors.q, [](auto, auto, auto, auto, float x) { return 30.0f * x; });

  transform(add("NaN", make_case(1, 2, 40, 200)).tensors.v,
            [](auto, std::int64_t s, std::int64_t h, std::int64_t channel, float x) {
              return s == 3 && h == 1 && channel == 5 ? numerics::quiet_nan() : x;
            });
  return problems;
}

}  // namespace openvc::test
