// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

#include "cpu/thread_pool.hpp"
#include "openvc/options.hpp"
#include "openvc/tensor_view.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cpu {

/// What is to be quantised and how; all fields validated by the caller.
struct PrepareRequest {
  TensorView q;                 // [B, Sq, H, D]
  TensorView k;                 // [B, Skv, H, D]
  TensorView v;                 // [B, Skv, H, D]
  schedule::Problem problem{};  // repair_rows = number of tokens to repair per head
  float softmax_scale = 1.0f;
  NumericOptions numerics{};
  bool with_log_sum_exp = false;
};

/// Fills `block` (prepared_layout(problem, numerics.max_extra_steps, with_log_sum_exp).bytes bytes,
/// aligned to kSectionAlignment, contents undefined on entry) and the plan of every head.
void prepare(const PrepareRequest& request, std::byte* block, std::span<HeadPlan> plans,
             ThreadPool& pool);

}  // namespace openvc::cpu
