// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>

#include "openvc/options.hpp"
#include "openvc/tensor_view.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cuda::prepare {

/// What is to be quantised and how; all fields validated by the caller. The device's twin of
/// cpu::PrepareRequest.
struct Request {
  TensorView q;                 // [B, Sq, H, D], device memory
  TensorView k;                 // [B, Skv, H, D], of the same type and on the same device
  TensorView v;                 // [B, Skv, H, D]
  schedule::Problem problem{};  // repair_rows = number of tokens to repair per head
  float softmax_scale = 1.0f;
  NumericOptions numerics{};
  bool with_log_sum_exp = false;
};

/// Device memory that launch() needs besides the block.
std::size_t workspace_bytes(const Request& request);

/// Queues the preparation on a stream of the inputs' device. The block gets the bytes that
/// cpu::prepare() writes, except residual columns beyond the steps of a head, which keep what they
/// held: prepared_layout(problem, numerics.max_extra_steps, with_log_sum_exp).bytes bytes. Block
/// and workspace are device memory, aligned to schedule::kSectionAlignment, contents undefined on
/// entry.
///
/// Allocates nothing, waits for nothing, can be captured into a CUDA graph; a replay reads the
/// inputs anew. A kernel behind it waits for it as for any other; one that is launched as a
/// programmatic dependent may start early and has to call ptx::griddepcontrol_wait(). Throws
/// openvc::Error.
void launch(const Request& request, std::byte* block, std::byte* workspace, void* stream);

/// Copies the plan of every head (batch * heads of them) out of the workspace of a launch(). Waits
/// for the stream, so it is not allowed while that is being captured.
void read_plans(const Request& request, const std::byte* workspace, std::span<HeadPlan> plans,
                void* stream);

}  // namespace openvc::cuda::prepare
