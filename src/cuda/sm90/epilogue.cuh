// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/ptx/half2.cuh"
#include "cuda/sm90/config.hpp"
#include "cuda/sm90/mainloop.cuh"
#include "cuda/sm90/parameters.cuh"
#include "numerics/half.hpp"
#include "numerics/online_softmax.hpp"

// From the accumulator to the output: normalise, undo the code of V, convert, store.
namespace openvc::cuda::sm90 {

/// Finite values stay finite: conversion saturates, NaN passes.
__device__ __forceinline__ std::uint32_t to_output(float a, float b, OutputType type) {
  if (type == OutputType::float16) {
    return ptx::cvt_rn_f16x2(numerics::saturate(a, numerics::kHalfMax),
                             numerics::saturate(b, numerics::kHalfMax));
  }
  return ptx::cvt_rn_bf16x2(numerics::saturate(a, numerics::kBfloat16Max),
                            numerics::saturate(b, numerics::kBfloat16Max));
}

/// Transposes a 4 x 4 matrix of registers over the four threads of a quad: thread t gives the
/// pieces values[0..3] of four groups and receives the four pieces of group t.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&values)[4]) {
  const bool odd = (threadIdx.x & 1u) != 0;
  const bool upper = (threadIdx.x & 2u) != 0;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {  // exchange with the neighbour at distance one
    const std::uint32_t sent = odd ? values[i] : values[i + 1];
    const std::uint32_t received = __shfl_xor_sync(0xFFFF'FFFFu, sent, 1);
    (odd ? values[i] : values[i + 1]) = received;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {  // and at distance two
    const std::uint32_t sent = upper ? values[i] : values[i + 2];
    const std::uint32_t received = __shfl_xor_sync(0xFFFF'FFFFu, sent, 2);
    (upper ? values[i] : values[i + 2]) = received;
  }
}

/// Stores the two rows of a thread. `row` is row g; rows at or beyond the last query are skipped.
template <class Config>
__device__ __forceinline__ void store_rows(const Consumer<Config>& c, std::int64_t batch_head) {
  const Parameters& p = c.parameters;
  const int quad_lane = static_cast<int>(threadIdx.x) % 4;
  const std::int64_t batch = batch_head / p.problem.heads;
  const std::int64_t head = batch_head % p.problem.heads;
  const float* scales = p.value_scales + batch_head * numerics::kHeadDim + 2 * quad_lane;
  const float* means = p.value_means + batch_head * numerics::kHeadDim + 2 * quad_lane;

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = c.first_row() + 8 * half;
    const float sum = c.accumulator[half == 0 ? kLowSum : kHighSum];
    const std::uint16_t row_max =
        static_cast<std::uint16_t>(half == 0 ? c.rows.row_max : c.rows.row_max >> 16);
    const bool no_keys = row_max == numerics::kHalfNegativeInfinity && sum == 0.0f;
    const float inverse = no_keys ? 0.0f : __frcp_rn(sum);
    const bool exists = row < p.problem.queries;

    if (p.log_sum_exp != nullptr && exists && quad_lane == 0) {
      const std::int64_t index = batch_head * p.problem.queries + row;
      const numerics::RowState state{no_keys ? -numerics::infinity() : 0.0f,
                                     c.rows.code_offset(half != 0, CodeRule(c.head)), sum};
      const float shift = p.smoothing_shifts != nullptr ? p.smoothing_shifts[index] : 0.0f;
      p.log_sum_exp[index] = numerics::log_sum_exp(state, logf(sum), shift);
    }

    std::uint16_t* output = static_cast<std::uint16_t*>(p.output) + batch * p.output_batch_stride +
                            row * p.output_row_stride + head * p.output_head_stride;
    // Groups of eight channels; four groups make one transposition.
#pragma unroll
    for (int group = 0; group < numerics::kHeadDim / 8; group += 4) {
      std::uint32_t pieces[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int channel = 8 * (group + i);
        const float2 scale = __ldg(reinterpret_cast<const float2*>(scales + channel));
        const float2 mean = __ldg(reinterpret_cast<const float2*>(means + channel));
        const float a = c.accumulator[4 * (group + i) + 2 * half] * inverse;
        const float b = c.accumulator[4 * (group + i) + 2 * half + 1] * inverse;
        pieces[i] = to_output(__fmaf_rn(a, scale.x, no_keys ? 0.0f : mean.x),
                              __fmaf_rn(b, scale.y, no_keys ? 0.0f : mean.y), p.output_type);
      }
      transpose_quad(pieces);
      if (exists) {
        std::uint16_t* target = output + 8 * (group + quad_lane);
        if (p.output_vectorised) {
          *reinterpret_cast<uint4*>(target) =
              make_uint4(pieces[0], pieces[1], pieces[2], pieces[3]);
        } else {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            target[2 * i] = static_cast<std::uint16_t>(pieces[i]);
            target[2 * i + 1] = static_cast<std::uint16_t>(pieces[i] >> 16);
          }
        }
      }
    }
  }
}

}  // namespace openvc::cuda::sm90
