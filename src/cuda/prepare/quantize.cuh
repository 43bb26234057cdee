// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/quantize_values.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/prepare/statistics.cuh"
#include "numerics/hadamard.hpp"
#include "numerics/qk_quantize.hpp"

// The second pass over the inputs: a thread block writes one tile of one section, padding included.
// Its loads are in flight before the plan of the head is finished.
namespace openvc::cuda::prepare {

/// Residual columns of one step of a tile, [row][column].
using ColumnTile = std::byte[kTileRows][numerics::kColumnsPerStep];
static_assert(sizeof(ColumnTile) == kTileThreads * sizeof(uint4), "one store per thread");

/// A tile of Q or K, and where its codes go.
struct ScoreTile : TileTokens {
  std::byte* codes;
};

/// Writes rows a and b, 16 bytes per thread: of two neighbours with 8 codes of both rows each, one
/// writes its half of row a, the other of row b.
__device__ __forceinline__ void store_row_pair(std::byte* row_a, std::byte* row_b, uint2 codes_a,
                                               uint2 codes_b, int chunk) {
  const bool is_odd = chunk % 2 != 0;
  const uint2 sent = is_odd ? codes_a : codes_b;
  const uint2 received = {__shfl_xor_sync(kAllLanes, sent.x, 1),
                          __shfl_xor_sync(kAllLanes, sent.y, 1)};
  const uint4 quad = is_odd ? make_uint4(received.x, received.y, codes_b.x, codes_b.y)
                            : make_uint4(codes_a.x, codes_a.y, received.x, received.y);
  *reinterpret_cast<uint4*>((is_odd ? row_b : row_a) + chunk / 2 * sizeof(uint4)) = quad;
}

/// Source row of a tile's row: padding of K repeats the last key of the block, padding of Q has
/// none.
template <bool kQuery>
__device__ __forceinline__ int source_row(int row, int count) {
  return kQuery || row < count ? row : count - 1;
}

/// Residual columns of the head's steps; `columns(step)` is where the tile's rows of a step go.
template <ElementType kType, bool kQuery, class Columns>
__device__ __forceinline__ void write_columns(const ScoreTile& tile, const numerics::HeadPlan& plan,
                                              float multiplier, int steps, ColumnTile& shared,
                                              const Columns& columns) {
  static_assert(numerics::kResidualChannelsPerStep == kRowThreads, "one position per thread");
  const TileThread thread;
  const int position = thread.chunk;
  const int low_column =
      kQuery ? numerics::query_low_column(position) : numerics::key_low_column(position);
  const int high_column =
      kQuery ? numerics::query_high_column(position) : numerics::key_high_column(position);
  const auto* quads = reinterpret_cast<const uint4*>(&shared) + static_cast<int>(threadIdx.x);
  for (int step = 0; step < steps; ++step) {
    auto* out = reinterpret_cast<uint4*>(columns(step)) + static_cast<int>(threadIdx.x);
    const int channel =
        plan.residual_channels[step * numerics::kResidualChannelsPerStep + position];
    const float mean = kQuery ? 0.0f : plan.key_means[channel];
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      const int row = thread.row(i);
      std::uint16_t bytes = 0;
      const bool exists = channel < tile.tokens.chunks * kChunkChannels;
      if (exists && (!kQuery || row < tile.count)) {
        float x = load_channel<kType>(tile.row(source_row<kQuery>(row, tile.count)), channel);
        if constexpr (!kQuery) x = x - mean;
        const float scaled = x * multiplier;
        const float value = decode_pair(ptx::cvt_rn_satfinite_e4m3x2_f32(scaled, 0.0f)).x;
        bytes = ptx::cvt_rn_satfinite_e4m3x2_f32(
            (scaled - value) * numerics::exp2_int(numerics::kResidualBalance),
            value * numerics::exp2_int(-numerics::kResidualBalance));
      }
      shared[row][low_column] = static_cast<std::byte>(bytes & 0xFFu);
      shared[row][high_column] = static_cast<std::byte>(bytes >> 8);
    }
    __syncthreads();
    *out = *quads;
    __syncthreads();
  }
}

/// A thread's chunks of a tile of Q or K.
template <ElementType kType>
using RawTile = RawChunk<kType>[kRowsPerThread];

/// Codes of a tile of Q or K. Rotation is a choice of the head, made once: its code stands apart
/// from that of most heads, which is short and straight.
template <ElementType kType, bool kQuery, bool kRotated>
__device__ __forceinline__ void write_score_codes(const ScoreTile& tile, const RawTile<kType>& raw,
                                                  const Chunk& means, float multiplier) {
  const TileThread thread;
  const auto encode_row = [&](int i) {
    Chunk x;
    to_floats<kType>(raw[i], x);
    if constexpr (!kQuery) {
#pragma unroll
      for (int c = 0; c < kChunkChannels; ++c) x[c] = x[c] - means[c];
    }
    if constexpr (kRotated) {
      rotate(x, thread.chunk, kQuery ? numerics::kQueryRotationScale : numerics::kKeyRotationScale);
    }
#pragma unroll
    for (int c = 0; c < kChunkChannels; ++c) x[c] = x[c] * multiplier;
    return kQuery && thread.row(i) >= tile.count ? uint2{0, 0} : encode_chunk(x);
  };
#pragma unroll
  for (int i = 0; i < kRowsPerThread; i += 2) {
    const uint2 first = encode_row(i);
    const uint2 second = encode_row(i + 1);
    store_row_pair(tile.codes + thread.row(i) * numerics::kHeadDim,
                   tile.codes + thread.row(i + 1) * numerics::kHeadDim, first, second,
                   thread.chunk);
  }
}

/// Smoothing shift of a query in the steps of an extreme head. All lanes of the warp take part.
__device__ __forceinline__ float scaled_shift(const Chunk& x, const Chunk& means,
                                              const numerics::HeadPlan& plan) {
  Chunk scaled_x;
  Chunk scaled_means;
#pragma unroll
  for (int c = 0; c < kChunkChannels; ++c) {
    scaled_x[c] = x[c] * plan.scores.query_multiplier;
    scaled_means[c] = means[c] * plan.scores.key_multiplier;
  }
  return numerics::scaled_smoothing_shift(row_dot(scaled_x, scaled_means), plan.scores.shift_unit);
}

/// Smoothing shift of each query of a tile.
template <ElementType kType>
__device__ __forceinline__ void write_shifts(const ScoreTile& tile, const RawTile<kType>& raw,
                                             const Chunk& means, const numerics::HeadPlan& plan,
                                             float softmax_scale, float* shifts) {
  const TileThread thread;
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    Chunk x;
    to_floats<kType>(raw[i], x);
    const float dot = row_dot(x, means);
    float shift = numerics::smoothing_shift(softmax_scale, dot);
    const bool scaled = numerics::needs_scaled_shift(dot, plan.scores.excess_exponent);
    if (__any_sync(kAllLanes, scaled)) {
      const float other = scaled_shift(x, means, plan);
      if (scaled) shift = other;
    }
    if (thread.chunk == 0 && thread.row(i) < tile.count) shifts[thread.row(i)] = shift;
  }
}

/// The second pass over a tile of Q or K, padding included. `wait` returns when the parameters can
/// be read; loads are in flight before.
template <ElementType kType, bool kAligned, bool kQuery, class Wait>
__device__ __forceinline__ void quantize_scores(const Arguments& a, std::int64_t bh,
                                                std::int64_t tile_index, const Wait& wait,
                                                ColumnTile& shared) {
  const numerics::HeadPlan& plan = a.plan(bh);
  const std::int64_t first = tile_index * kTileRows;
  const ScoreTile tile{{kQuery ? a.queries(bh) : a.keys(a.k, bh), tile_index},
                       kQuery ? a.query_row(bh, first) : a.key_row(bh, first)};
  if (!kQuery && tile.count == 0) return wait();  // behind the keys of its sequence
  const bool with_shifts = kQuery && a.with_log_sum_exp;
  const TileThread thread;
  RawTile<kType> raw;
  tile.visit_rows([&](const auto& rows) {
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      const int row = source_row<kQuery>(thread.row(i), tile.count);
      const bool exists = thread.chunk < tile.tokens.chunks && row < tile.count;
      raw[i] = load_chunk<kType, kAligned>(rows.row(row, exists), thread.chunk, exists);
    }
  });
  wait();
  const float multiplier = kQuery ? plan.scores.query_multiplier : plan.scores.key_multiplier;
  const bool rotated = plan.scores.rotated != 0;
  const int steps = plan.scores.extra_steps;
  Chunk means = {};
  if (!kQuery || a.with_log_sum_exp) load_table(plan.key_means, thread.chunk, means);
  if (with_shifts) {
    write_shifts<kType>(tile, raw, means, plan, a.softmax_scale, a.smoothing_shifts(bh, first));
    if (plan.scores.axes != 0) return;  // the codes are left to quantize_on_axes()
  }
  if (rotated) {
    write_score_codes<kType, kQuery, true>(tile, raw, means, multiplier);
  } else {
    write_score_codes<kType, kQuery, false>(tile, raw, means, multiplier);
  }
  write_columns<kType, kQuery>(tile, plan, multiplier, steps, shared, [&](int step) {
    return kQuery ? a.query_columns(step, bh, first) : a.key_columns(step, bh, first);
  });
}

/// The second pass over a tile of V.
template <ElementType kType, bool kAligned, class Wait>
__device__ __forceinline__ void quantize_values(const Arguments& a, std::int64_t bh,
                                                std::int64_t tile, const Wait& wait,
                                                ValueTile& shared) {
  const std::int64_t first = tile * kTileRows;
  const TileTokens tokens(a.keys(a.v, bh), tile);
  const int count = tokens.count;
  if (count == 0) return wait();  // behind the keys of its sequence
  float* energies = a.problem.repair_rows > 0 ? a.energies(bh) + first : nullptr;
  write_value_tile<kType, kAligned, ValueContent::codes>(
      tokens, count, a.spare_head_dim(), wait, a.plan(bh), energies, shared,
      a.block_layout.format.ones_rows, a.value_block(bh, tile));
}

}  // namespace openvc::cuda::prepare
