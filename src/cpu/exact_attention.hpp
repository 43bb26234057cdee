// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

#include "cpu/thread_pool.hpp"
#include "openvc/options.hpp"
#include "openvc/tensor_view.hpp"

namespace openvc::cpu {

/// softmax(softmax_scale Q K^T) V in float64 for the given queries, two passes per row.
///
/// out [B, rows.size(), H, D] contiguous; log_sum_exp null or [B, H, rows.size()].
void exact_attention(const TensorView& q, const TensorView& k, const TensorView& v,
                     std::span<const std::int64_t> rows, double* out, double* log_sum_exp,
                     Mask mask, double softmax_scale, ThreadPool& pool);

}  // namespace openvc::cpu
