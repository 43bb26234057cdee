// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "numerics/plan_scores.hpp"
#include "openvc/options.hpp"
#include "openvc/tensor_view.hpp"
#include "schedule/prepared_layout.hpp"
#include "schedule/problem.hpp"

namespace openvc::schedule {

/// What is to be quantised and how: the argument of every backend's preparation. All fields are
/// validated by the caller.
struct PrepareRequest {
  // In memory of the backend's device, of one type. Packed sequences have one batch of all tokens.
  TensorView q;       // [B, Sq, H, D]
  TensorView k;       // [B, Skv, H, D]
  TensorView v;       // [B, Skv, H, D]
  Problem problem{};  // repair_rows = number of tokens to repair per head
  float softmax_scale = 1.0f;
  NumericOptions numerics{};
  bool with_log_sum_exp = false;
  PackedFormat format{};        // of the backend that reads the result
  KeySelection selection{};     // in memory of the backend's device
  PackedSequences sequences{};  // in memory of the backend's device

  /// Whether sequences have fewer tokens than the problem, or another place in the tensors.
  [[nodiscard]] constexpr bool with_bounds() const { return selection.any() || sequences.any(); }
};

/// Whether V of fewer than kHeadDim channels has residuals in the channels that it leaves: always,
/// but for V repair, which brings residuals of its own.
constexpr bool with_spare_residuals(const PrepareRequest& request) {
  return request.problem.head_dim < numerics::kHeadDim && request.problem.repair_rows == 0;
}

/// Whether heads may have V coded on axes: wanted, in calls that are long enough for what it costs
/// unless they insist, with all channels, and without V repair, which is another remedy for the
/// same error.
OPENVC_HD constexpr bool wants_value_axes(const NumericOptions& options, const Problem& problem) {
  if (options.value_axes == Choice::never || problem.repair_rows != 0 ||
      problem.head_dim < numerics::kHeadDim || problem.keys < numerics::kMinValueAxesKeys) {
    return false;
  }
  return options.value_axes == Choice::always ||
         numerics::earns_axes(problem.queries, problem.keys);
}

constexpr bool with_value_axes(const PrepareRequest& request) {
  return wants_value_axes(request.numerics, request.problem);
}

constexpr PreparedLayout prepared_layout(const PrepareRequest& request) {
  return prepared_layout(request.problem, request.numerics.max_extra_steps,
                         request.with_log_sum_exp, request.format, with_value_axes(request),
                         request.with_bounds());
}

/// What a preparation of the request leaves in a block of prepared_layout(request).bytes bytes.
constexpr PreparedView prepared_view(const PrepareRequest& request, const std::byte* block) {
  return {.data = block,
          .problem = request.problem,
          .layout = prepared_layout(request),
          .max_extra_steps = request.numerics.max_extra_steps,
          .with_log_sum_exp = request.with_log_sum_exp,
          .with_value_axes = with_value_axes(request),
          .with_bounds = request.with_bounds()};
}

}  // namespace openvc::schedule
