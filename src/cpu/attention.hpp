// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "cpu/thread_pool.hpp"
#include "openvc/tensor_view.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cpu {

/// FP8 attention on prepared inputs, streaming over key blocks: memory O(S), never S x S.
///
/// out [B, Sq, H, kHeadDim], any strides with channel stride 1; log_sum_exp null or [B, H, Sq].
/// Probabilities are the bytes of the contract; products are exact in binary32 up to summation.
void attention_prepared(const schedule::PreparedView& inputs, const MutableTensorView& out,
                        float* log_sum_exp, ThreadPool& pool);

}  // namespace openvc::cpu
