// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/attention/parameters.cuh"
#include "cuda/ptx/cvt.cuh"
#include "numerics/online_softmax.hpp"

// How attention kernels of all architectures write their results.
namespace openvc::cuda {

/// Conversion saturates, so finite values stay finite; NaN passes.
__device__ __forceinline__ std::uint32_t to_output(float a, float b, OutputType type) {
  return type == OutputType::float16 ? ptx::cvt_rn_satfinite_f16x2(a, b)
                                     : ptx::cvt_rn_satfinite_bf16x2(a, b);
}

/// The sequence and the head of a pair of them, divided in 32 bits: there is less code for that.
struct BatchHead {
  std::uint32_t batch;
  std::uint32_t head;
};

__device__ __forceinline__ BatchHead split(const Parameters& p, std::int64_t batch_head) {
  const auto index = static_cast<std::uint32_t>(batch_head);
  const auto heads = static_cast<std::uint32_t>(p.problem.heads);
  return {index / heads, index % heads};
}

/// Where a row of the output goes, and what its values are divided by.
struct OutputRow {
  std::uint16_t* data;
  float sum;      // of the weights
  float inverse;  // of that; 0 for a row without keys
  bool no_keys;   // such a row is zero
  bool exists;
};

__device__ __forceinline__ OutputRow output_row(const Parameters& p, std::int64_t batch_head,
                                                std::int64_t row, float sum) {
  const auto [batch, head] = split(p, batch_head);
  const schedule::SequenceBounds sequence = p.bounds_of(batch_head);
  OutputRow out;
  out.sum = sum;
  out.no_keys = out.sum == 0.0f;
  out.inverse = out.no_keys ? 0.0f : __frcp_rn(out.sum);
  out.exists = row < sequence.queries;
  out.data = static_cast<std::uint16_t*>(p.output) + batch * p.output_batch_stride +
             (sequence.first_query + row) * p.output_row_stride + head * p.output_head_stride;
  return out;
}

/// `reference`: of a wide head.
__device__ __forceinline__ void store_log_sum_exp(const Parameters& p, std::int64_t batch_head,
                                                  std::int64_t row, const numerics::HeadRule& head,
                                                  float sum, float reference) {
  numerics::RowState state = numerics::empty_row(head);
  state.sum = sum;
  if (head.wide()) state.reference = reference;
  const float shift = p.smoothing_shifts != nullptr
                          ? p.smoothing_shifts[batch_head * p.problem.queries + row]
                          : 0.0f;
  const BatchHead of = split(p, batch_head);
  p.log_sum_exp[of.batch * p.log_sum_exp_batch_stride + of.head * p.output_rows +
                p.bounds_of(batch_head).first_query + row] =
      numerics::log_sum_exp(state, head, logf(sum), shift);
}

/// How rows are stored: 16 bytes at a time, or two where a row may start anywhere.
enum class RowStore { vectors, elements };

/// 16 bytes of a row.
template <RowStore kStore>
__device__ __forceinline__ void store_pieces(std::uint16_t* target,
                                             const std::uint32_t (&pieces)[4]) {
  if constexpr (kStore == RowStore::vectors) {
    *reinterpret_cast<uint4*>(target) = make_uint4(pieces[0], pieces[1], pieces[2], pieces[3]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      target[2 * i] = static_cast<std::uint16_t>(pieces[i]);
      target[2 * i + 1] = static_cast<std::uint16_t>(pieces[i] >> 16);
    }
  }
}

}  // namespace openvc::cuda
