// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "openvc/tensor_view.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cuda::sm100 {

/// What the kernel reads: blocks of 256 query rows, and a product of N = 144, the first multiple of
/// 16 with room for the residual columns of V and a row of ones.
inline constexpr schedule::PackedFormat kPackedFormat{.query_tile = 256, .ones_rows = 9};

/// Queues FP8 attention of prepared inputs on a stream of the output's device, one of compute
/// capability 10.0 or 10.3. Not yet run on hardware.
///
/// `inputs` and `log_sum_exp` ([B, H, Sq] floats or null) are device memory; out is
/// [B, Sq, H, kHeadDim], bfloat16 or float16, any strides with channel stride 1. Allocates nothing,
/// waits for nothing, can be captured into a CUDA graph. Throws openvc::Error.
void launch(const schedule::PreparedView& inputs, const MutableTensorView& out, float* log_sum_exp,
            void* stream);

}  // namespace openvc::cuda::sm100
