// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

#include "numerics/head_plan.hpp"
#include "schedule/prepare_request.hpp"

namespace openvc::cuda::prepare {

/// Device memory that launch() needs besides the block.
std::size_t workspace_bytes(const schedule::PrepareRequest& request);

/// Queues the preparation on a stream of the inputs' device. The block gets the bytes that
/// cpu::prepare() writes, on axes but for ties, except residual columns beyond the steps of a head
/// and the basis of V of a head that is not on axes, which keep what they held:
/// prepared_layout(request).bytes bytes. Block and workspace are device memory, aligned to
/// schedule::kSectionAlignment, contents undefined on entry.
///
/// Allocates nothing, waits for nothing, can be captured into a CUDA graph; a replay reads the
/// inputs anew. A kernel behind it waits for it as for any other; one that is launched as a
/// programmatic dependent may start early and has to call ptx::griddepcontrol_wait(). Throws
/// openvc::Error.
void launch(const schedule::PrepareRequest& request, std::byte* block, std::byte* workspace,
            void* stream);

/// Copies the plan of every head out of the workspace of a launch(). Waits for the stream, so it is
/// not allowed while that is being captured.
std::vector<numerics::HeadPlan> read_plans(const schedule::PrepareRequest& request,
                                           const std::byte* workspace, void* stream);

}  // namespace openvc::cuda::prepare
