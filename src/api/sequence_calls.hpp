// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "openvc/options.hpp"
#include "openvc/tensor_view.hpp"

// Calls whose sequences have unlike tokens, on the CPU: a call for each, on what it has.
namespace openvc::api {

/// A validated call.
struct SequenceCall {
  TensorView q;
  TensorView k;
  TensorView v;
  MutableTensorView out;
  float* log_sum_exp = nullptr;
};

/// What serves one sequence, whose tokens all take part.
using AttendSequence = std::function<void(const SequenceCall&)>;

/// Attention over a selection of keys. `check(q, k, v, batch, tokens)` looks at the elements that
/// take part before anything is computed with them.
using CheckSequence = std::function<void(const SequenceCall&, std::int64_t batch,
                                         const std::vector<std::int64_t>& tokens)>;
void attend_selected(const SequenceCall& call, const KeySelection& keys, const CheckSequence& check,
                     const AttendSequence& attend);

/// Attention of packed sequences, whose boundaries have been checked.
void attend_packed(const SequenceCall& call, const PackedSequences& sequences,
                   const AttendSequence& attend);

}  // namespace openvc::api
