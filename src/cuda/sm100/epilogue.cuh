// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/output.cuh"
#include "cuda/sm100/config.hpp"
#include "cuda/sm100/mainloop.cuh"
#include "schedule/prepared_layout.hpp"

// From the accumulator to the output: normalise, undo the code of V, convert, store.
namespace openvc::cuda::sm100 {

/// Adds the residual columns of V to the axes that they belong to.
template <class Config>
__device__ __forceinline__ void add_residual_columns(Consumer<Config>& c) {
#pragma unroll
  for (int i = 0; i < numerics::kValueColumns; ++i) {
    c.accumulator[i] += c.accumulator[numerics::kHeadDim + i];
  }
}

/// Adds the residuals of V that are in channels behind those of the tensors.
template <class Config>
__device__ __forceinline__ void add_spare_residuals(Consumer<Config>& c) {
  const int head_dim = c.parameters.problem.head_dim;
  if (head_dim == numerics::kHeadDim) return;
#pragma unroll
  for (int i = 0; i < schedule::kSpareDistance; ++i) {
    if (!schedule::has_spare_residual(i, head_dim)) continue;
    c.accumulator[i] += c.accumulator[i + schedule::kSpareDistance];
  }
}

template <RowStore kStore, class Config>
__device__ __forceinline__ void store_channels(const Consumer<Config>& c, const OutputRow& row) {
  const auto* scales = reinterpret_cast<const float4*>(c.value_code().scales);
  const auto* means = reinterpret_cast<const float4*>(c.value_code().means);
  // Those of axes are added when the output leaves them.
  const bool no_means = c.head.values_on_axes() || row.no_keys;
  constexpr int kChannels = numerics::kRowChunk;  // of 16 bytes
  constexpr int kQuad = 4;
#pragma unroll
  for (int first = 0; first < numerics::kHeadDim; first += kChannels) {
    if (first >= c.parameters.problem.head_dim) break;
    std::uint32_t pieces[kChannels / 2];
#pragma unroll
    for (int i = 0; i < kChannels; i += kQuad) {
      const float4 scale = scales[(first + i) / kQuad];
      const float4 mean = no_means ? float4{} : means[(first + i) / kQuad];
      const float* sums = c.accumulator + first + i;
      pieces[i / 2] =
          to_output(__fmaf_rn(sums[0] * row.inverse, scale.x, mean.x),
                    __fmaf_rn(sums[1] * row.inverse, scale.y, mean.y), c.parameters.output_type);
      pieces[i / 2 + 1] =
          to_output(__fmaf_rn(sums[2] * row.inverse, scale.z, mean.z),
                    __fmaf_rn(sums[3] * row.inverse, scale.w, mean.w), c.parameters.output_type);
    }
    if (row.exists) store_pieces<kStore>(row.data + first, pieces);
  }
}

/// Stores the row of a thread; rows at or beyond the last query are skipped.
template <class Config>
__device__ __forceinline__ void store_row(Consumer<Config>& c, std::int64_t batch_head) {
  add_residual_columns(c);
  add_spare_residuals(c);
  const OutputRow row = output_row(c.parameters, batch_head, c.row(), c.accumulator[kSumRegister]);
  if (c.parameters.log_sum_exp != nullptr && row.exists) {
    store_log_sum_exp(c.parameters, batch_head, c.row(), c.head, row.sum,
                      ptx::cvt_f32_f16_low(c.reference));
  }
  if (c.parameters.output_vectorised) {
    store_channels<RowStore::vectors>(c, row);
  } else {
    store_channels<RowStore::elements>(c, row);
  }
}

}  // namespace openvc::cuda::sm100
