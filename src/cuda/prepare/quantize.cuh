// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/predict_flush.cuh"
#include "cuda/prepare/quantize_values.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "numerics/hadamard.hpp"
#include "numerics/qk_quantize.hpp"

// The second pass over the inputs: every thread block writes one tile of one section, padding
// included. Its elements are on their way before the plans of the heads are finished.
namespace openvc::cuda::prepare {

/// Residual columns of one step of a tile, [row][column].
using ColumnTile = std::byte[kTileRows][numerics::kColumnsPerStep];
static_assert(sizeof(ColumnTile) == kTileThreads * sizeof(uint4), "one store per thread");

union QuantizeStorage {
  alignas(16) ColumnTile columns;
  alignas(16) ValueTile values;
  FlushStorage flush;
};

/// What distinguishes the tiles of Q and K.
struct ScoreTile {
  const std::byte* source;  // row 0 of the tile
  std::int64_t row_stride;
  int count;  // rows that hold tokens
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

/// Source row of a tile's row: padding of K repeats the last key, padding of Q has none.
template <bool kQuery>
__device__ __forceinline__ int source_row(int row, int count) {
  return kQuery || row < count ? row : count - 1;
}

/// Residual columns of all steps. `columns(step)` is where the tile's rows of a step go.
template <ElementType kType, bool kQuery, class Columns>
__device__ __forceinline__ void write_columns(const ScoreTile& tile,
                                              const HeadParameters& parameters, float multiplier,
                                              int max_extra_steps, ColumnTile& shared,
                                              const Columns& columns) {
  static_assert(numerics::kResidualChannelsPerStep == kRowThreads, "one position per thread");
  const TileThread thread;
  const int position = thread.chunk;
  const int low_column =
      kQuery ? numerics::query_low_column(position) : numerics::key_low_column(position);
  const int high_column =
      kQuery ? numerics::query_high_column(position) : numerics::key_high_column(position);
  const auto* quads = reinterpret_cast<const uint4*>(&shared) + threadIdx.x;
  for (int step = 0; step < max_extra_steps; ++step) {
    auto* out = reinterpret_cast<uint4*>(columns(step)) + threadIdx.x;
    if (step >= parameters.extra_steps) {
      *out = make_uint4(0, 0, 0, 0);
      continue;
    }
    const int channel =
        parameters.residual_channels[step * numerics::kResidualChannelsPerStep + position];
    const float mean = kQuery ? 0.0f : parameters.key_means[channel];
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      const int row = thread.row(i);
      std::uint16_t bytes = 0;
      if (!kQuery || row < tile.count) {
        float x = load_channel<kType>(
            tile.source + source_row<kQuery>(row, tile.count) * tile.row_stride, channel);
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

/// Codes of a tile of Q or K; `shifts` takes the smoothing shift of each query, or is null. Waits
/// for the grid before.
template <ElementType kType, bool kAligned, bool kQuery>
__device__ __forceinline__ void write_score_codes(const ScoreTile& tile,
                                                  const HeadParameters& parameters,
                                                  float softmax_scale, float* shifts) {
  const TileThread thread;
  RawChunk<kType> raw[kRowsPerThread];
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    const int row = source_row<kQuery>(thread.row(i), tile.count);
    raw[i] = load_chunk<kType, kAligned>(tile.source + row * tile.row_stride, thread.chunk,
                                         !kQuery || row < tile.count);
  }
  ptx::griddepcontrol_wait();
  Chunk means;
  load_table(parameters.key_means, thread.chunk, means);
  const float multiplier = kQuery ? parameters.query_multiplier : parameters.key_multiplier;
  const bool rotated = parameters.rotated != 0;
  uint2 codes[kRowsPerThread];
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    const int row = thread.row(i);
    Chunk x;
    to_floats<kType>(raw[i], x);
    if constexpr (kQuery) {
      if (shifts != nullptr) {
        const float dot = row_dot(x, means);
        if (thread.chunk == 0 && row < tile.count) {
          shifts[row] = numerics::smoothing_shift(softmax_scale, dot);
        }
      }
    } else {
#pragma unroll
      for (int c = 0; c < kChunkChannels; ++c) x[c] = x[c] - means[c];
    }
    if (rotated) {
      rotate(x, thread.chunk, kQuery ? numerics::kQueryRotationScale : numerics::kKeyRotationScale);
    }
#pragma unroll
    for (int c = 0; c < kChunkChannels; ++c) x[c] = x[c] * multiplier;
    codes[i] = encode_chunk(x);
    if (kQuery && row >= tile.count) codes[i] = {0, 0};
  }
#pragma unroll
  for (int i = 0; i < kRowsPerThread; i += 2) {
    store_row_pair(tile.codes + thread.row(i) * numerics::kHeadDim,
                   tile.codes + thread.row(i + 1) * numerics::kHeadDim, codes[i], codes[i + 1],
                   thread.chunk);
  }
}

/// Grid (1 + 2 key blocks + padded query tiles, heads of the round), kTileThreads threads. V and K
/// come first: the first pass has read them last.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kTileThreads)
    quantize_inputs(const __grid_constant__ Arguments a) {
  __shared__ QuantizeStorage shared;
  ptx::griddepcontrol_launch_dependents();
  const schedule::Problem& problem = a.problem;
  const std::int64_t head = blockIdx.y;
  const std::int64_t bh = a.first_head + head;
  const HeadParameters& parameters = a.parameters(bh);
  const std::int64_t key_blocks = a.workspace_layout.key_tiles;
  if (blockIdx.x == 0) {
    predict_flush<kType, kAligned>(a, bh, shared.flush);
    return;
  }
  std::int64_t tile = blockIdx.x - 1;
  if (tile < key_blocks) {
    const std::int64_t first = tile * kTileRows;
    const int count = rows_in_tile(problem.keys, tile);
    const std::byte* rows = a.v.head(bh, problem.heads) + first * a.v.row_stride;
    float* energies = problem.repair_rows > 0 ? a.energies(head) + first : nullptr;
    write_value_tile<kType, kAligned, ValueContent::codes>(
        [&](int row) { return rows + row * a.v.row_stride; }, count, count, parameters, energies,
        shared.values, a.value_block(bh, tile));
    return;
  }
  tile -= key_blocks;
  if (tile < key_blocks) {
    const std::int64_t first = tile * kTileRows;
    const ScoreTile keys{a.k.head(bh, problem.heads) + first * a.k.row_stride, a.k.row_stride,
                         rows_in_tile(problem.keys, tile), a.key_row(bh, first)};
    write_score_codes<kType, kAligned, false>(keys, parameters, a.softmax_scale, nullptr);
    write_columns<kType, false>(keys, parameters, parameters.key_multiplier,
                                a.numerics.max_extra_steps, shared.columns,
                                [&](int step) { return a.key_columns(step, bh, first); });
    return;
  }
  tile -= key_blocks;
  const std::int64_t first = tile * kTileRows;
  const ScoreTile queries{a.q.head(bh, problem.heads) + first * a.q.row_stride, a.q.row_stride,
                          rows_in_tile(problem.queries, tile), a.query_row(bh, first)};
  float* shifts = a.with_log_sum_exp ? a.section<float>(a.block_layout.smoothing_shifts) +
                                           bh * problem.queries + first
                                     : nullptr;
  write_score_codes<kType, kAligned, true>(queries, parameters, a.softmax_scale, shifts);
  write_columns<kType, true>(queries, parameters, parameters.query_multiplier,
                             a.numerics.max_extra_steps, shared.columns,
                             [&](int step) { return a.query_columns(step, bh, first); });
}

}  // namespace openvc::cuda::prepare
