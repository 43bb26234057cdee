// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/output.cuh"
#include "cuda/ptx/cvt.cuh"
#include "numerics/contract.hpp"
#include "schedule/prepared_layout.hpp"

// From an accumulator in the registers of a warp to the output: normalise, undo the code of V,
// convert, store. A consumer has the places of fragment_softmax.cuh, in binary32: of every four
// registers, two columns of row g and two of row g + 8.
//
// Consumer: what the main loop of an architecture leaves. Its members parameters, head, rows,
// accumulator, first_row() and value_code() are used.
namespace openvc::cuda {

// Columns behind the channels: those of residuals lie in the threads and registers of the axes that
// they belong to, 64 registers further; the column of ones, the last, in the last lane of each
// quad.
inline constexpr int kColumnRegisters = numerics::kHeadDim / 2;
inline constexpr int kLowSum = kColumnRegisters + 1;   // of row g
inline constexpr int kHighSum = kColumnRegisters + 3;  // of row g + 8
inline constexpr int kSumLane = 3;
static_assert(numerics::kValueColumns == 7, "one row of ones makes eight");

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

/// The row g, or g + 8, of a thread.
template <class Consumer>
__device__ __forceinline__ OutputRow row_of(const Consumer& c, std::int64_t batch_head, int half) {
  const float sum =
      __shfl_sync(0xFFFF'FFFFu, c.accumulator[half == 0 ? kLowSum : kHighSum], kSumLane, 4);
  return output_row(c.parameters, batch_head, c.first_row() + 8 * half, sum);
}

template <RowStore kStore, class Consumer>
__device__ __forceinline__ void store_channels(const Consumer& c, const OutputRow (&rows)[2]) {
  const int quad_lane = static_cast<int>(threadIdx.x) % 4;
  const auto* scales = reinterpret_cast<const float2*>(c.value_code().scales) + quad_lane;
  const auto* means = reinterpret_cast<const float2*>(c.value_code().means) + quad_lane;
  constexpr int kGroupPairs = 4;  // of eight channels; four groups make one transposition
  constexpr bool kCausal = Consumer::kConfig.causal;
  // Those of axes are added when the output leaves them. Without a mask all rows of a sequence have
  // keys, or none has.
  const bool no_means = c.head.values_on_axes() || (!kCausal && rows[0].no_keys);
#pragma unroll
  for (int group = 0; group < numerics::kHeadDim / 8; group += 4) {
    float2 scale[4];
    float2 mean[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scale[i] = scales[kGroupPairs * (group + i)];
      mean[i] = no_means ? float2{} : means[kGroupPairs * (group + i)];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const OutputRow& row = rows[half];
      std::uint32_t pieces[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float a = c.accumulator[4 * (group + i) + 2 * half] * row.inverse;
        const float b = c.accumulator[4 * (group + i) + 2 * half + 1] * row.inverse;
        const bool zero = kCausal && row.no_keys;
        pieces[i] =
            to_output(__fmaf_rn(a, scale[i].x, zero ? 0.0f : mean[i].x),
                      __fmaf_rn(b, scale[i].y, zero ? 0.0f : mean[i].y), c.parameters.output_type);
      }
      transpose_quad(pieces);
      const int channel = 8 * (group + quad_lane);
      if (row.exists && channel < c.parameters.problem.head_dim) {
        store_pieces<kStore>(row.data + channel, pieces);
      }
    }
  }
}

/// Adds the residual columns of V to the axes that they belong to.
template <class Consumer>
__device__ __forceinline__ void add_residual_columns(Consumer& c) {
  const bool is_sum = threadIdx.x % 4 == kSumLane;  // the last column counts
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i % 2 == 0 || !is_sum) c.accumulator[i] += c.accumulator[kColumnRegisters + i];
  }
}

/// Adds the residuals of V that are in channels behind those of the tensors.
template <class Consumer>
__device__ __forceinline__ void add_spare_residuals(Consumer& c) {
  constexpr int kChannels = 8;  // of four registers: two of each row
  static_assert(kChannels == numerics::kRowChunk, "head sizes are multiples");
  constexpr int kDistance = schedule::kSpareDistance / kChannels;
  const int head_dim = c.parameters.problem.head_dim;
  if (head_dim == numerics::kHeadDim) return;
#pragma unroll
  for (int group = 0; group < kDistance; ++group) {
    if (!schedule::has_spare_residual(group * kChannels, head_dim)) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      c.accumulator[4 * group + i] += c.accumulator[4 * (group + kDistance) + i];
    }
  }
}

/// Stores the two rows of a thread; rows at or beyond the last query are skipped.
template <class Consumer>
__device__ __forceinline__ void store_rows(Consumer& c, std::int64_t batch_head) {
  add_residual_columns(c);
  add_spare_residuals(c);
  const OutputRow rows[2] = {row_of(c, batch_head, 0), row_of(c, batch_head, 1)};
  if (c.parameters.log_sum_exp != nullptr && threadIdx.x % 4 == 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!rows[half].exists) continue;
      const float reference = half == 0 ? ptx::cvt_f32_f16_low(c.rows.reference)
                                        : ptx::cvt_f32_f16_high(c.rows.reference);
      store_log_sum_exp(c.parameters, batch_head, c.first_row() + 8 * half, c.head, rows[half].sum,
                        reference);
    }
  }
  if (c.parameters.output_vectorised) {
    store_channels<RowStore::vectors>(c, rows);
  } else {
    store_channels<RowStore::elements>(c, rows);
  }
}

}  // namespace openvc::cuda
