// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "openvc/tensor_view.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cuda::sm89 {

/// What the kernel reads: the Hopper kernel's format, with products of N = 8, 17 of them.
inline constexpr schedule::PackedFormat kPackedFormat{.query_tile = 256, .ones_rows = 1};

/// Queues FP8 attention of prepared inputs on a stream of the output's device, one that this build
/// has an image for: of compute capability 8.9, 12.0 or 12.1. Not yet run on one of these; tests
/// run an image of it on Hopper.
///
/// `inputs` and `log_sum_exp` ([B, H, Sq] floats or null) are device memory; out is
/// [B, Sq, H, kHeadDim], bfloat16 or float16, any strides with channel stride 1. Allocates nothing,
/// waits for nothing, can be captured into a CUDA graph. Throws openvc::Error.
void launch(const schedule::PreparedView& inputs, const MutableTensorView& out, float* log_sum_exp,
            void* stream);

}  // namespace openvc::cuda::sm89
