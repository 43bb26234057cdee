// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "openvc/tensor_view.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cuda::sm90 {

/// What the kernel reads: clusters of two blocks of 128 query rows, and a product of N = 136.
inline constexpr schedule::PackedFormat kPackedFormat{.query_tile = 256, .ones_rows = 1};

/// Queues FP8 attention of prepared inputs on a stream of the output's device, one of compute
/// capability 9.0.
///
/// `inputs` and `log_sum_exp` ([B, H, Sq] floats or null) are device memory; out is
/// [B, Sq, H, kHeadDim], bfloat16 or float16, any strides with channel stride 1. Allocates nothing,
/// waits for nothing, can be captured into a CUDA graph. Throws openvc::Error.
void launch(const schedule::PreparedView& inputs, const MutableTensorView& out, float* log_sum_exp,
            void* stream);

}  // namespace openvc::cuda::sm90
