// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "openvc/tensor_view.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cuda::output {

/// Queues, behind an attention kernel on the same stream, what brings its output from the axes of V
/// back to channels: o_c = sum over axes j of o_j u_jc + mean_c, in place, in the heads whose rule
/// says values_on_axes(). Nothing where the inputs cannot have such heads.
///
/// `inputs` is device memory, `out` [B, Sq, H, kHeadDim], bfloat16 or float16, what the attention
/// kernel has written. Allocates nothing, waits for nothing, can be captured into a CUDA graph.
/// Throws openvc::Error.
void leave_axes(const schedule::PreparedView& inputs, const MutableTensorView& out, void* stream);

}  // namespace openvc::cuda::output
