// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/axes.cuh"
#include "cuda/prepare/quantize.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/ptx/cvt.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/mma.cuh"
#include "numerics/qk_quantize.hpp"

// Codes and residual columns of Q and K of heads that are on principal axes: a tile times the
// head's matrix. Inputs of 16 bits are exact operands of the tensor cores, and so are the two terms
// of the matrix; sums are binary32 in the order of the hardware. Bytes differ from those of the
// CPU, which sums in the order of the channels, only where a product lies within the rounding of
// its sum from a tie of E4M3.
namespace openvc::cuda::prepare {

/// Rows of codes in shared memory; the padding spreads them over the banks.
inline constexpr int kCodeStride = numerics::kHeadDim + 16;

struct AxesTile {
  alignas(16) std::uint8_t codes[kTileRows][kCodeStride];
  alignas(16) std::uint8_t columns[numerics::kMaxExtraSteps][kTileRows][numerics::kColumnsPerStep];
};

/// How elements of the product become bytes.
struct AxesOutput {
  float multiplier;
  int residual_columns;
};

/// Bytes of two neighbouring elements of a row.
template <bool kQuery>
__device__ __forceinline__ void write_pair(AxesTile& shared, const AxesOutput& output, int row,
                                           int column, float first, float second) {
  const float x = first * output.multiplier;
  const float y = second * output.multiplier;
  const std::uint16_t codes = ptx::cvt_rn_satfinite_e4m3x2_f32(x, y);
  *reinterpret_cast<std::uint16_t*>(&shared.codes[row][column]) = codes;
  if (column >= output.residual_columns) return;
  const int step = column / numerics::kResidualChannelsPerStep;
  const int position = column % numerics::kResidualChannelsPerStep;
  const float2 values = decode_pair(codes);
  constexpr float kLow = numerics::exp2_int(numerics::kResidualBalance);
  constexpr float kHigh = numerics::exp2_int(-numerics::kResidualBalance);
  const int low =
      kQuery ? numerics::query_low_column(position) : numerics::key_low_column(position);
  const int high =
      kQuery ? numerics::query_high_column(position) : numerics::key_high_column(position);
  std::uint8_t* columns = shared.columns[step][row];
  *reinterpret_cast<std::uint16_t*>(columns + low) =
      ptx::cvt_rn_satfinite_e4m3x2_f32((x - values.x) * kLow, (y - values.y) * kLow);
  *reinterpret_cast<std::uint16_t*>(columns + high) =
      ptx::cvt_rn_satfinite_e4m3x2_f32(values.x * kHigh, values.y * kHigh);
}

/// Copies the tile's codes and residual columns to the block.
template <class Columns>
__device__ __forceinline__ void store_tile(const AxesTile& shared, std::byte* codes, int steps,
                                           const Columns& columns) {
  constexpr int kRowQuads = numerics::kHeadDim / static_cast<int>(sizeof(uint4));
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kRowQuads; i += kTileThreads) {
    reinterpret_cast<uint4*>(codes)[i] =
        *reinterpret_cast<const uint4*>(&shared.codes[i / kRowQuads][i % kRowQuads * 16]);
  }
  static_assert(sizeof(shared.columns[0]) == kTileThreads * sizeof(uint4));
  for (int step = 0; step < steps; ++step) {
    reinterpret_cast<uint4*>(columns(step))[threadIdx.x] =
        reinterpret_cast<const uint4*>(&shared.columns[step])[threadIdx.x];
  }
}

/// A warp multiplies 32 rows by half of the columns. Which channel sits at which place of the
/// contraction does not matter as long as both operands agree: a thread takes eight neighbouring
/// ones, as they are in memory, for two products of depth 16.
template <ElementType kType, bool kAligned, bool kQuery>
__device__ __forceinline__ void multiply_tile(const Arguments& a, std::int64_t bh,
                                              const ScoreTile& tile, const AxesOutput& output,
                                              AxesTile& shared) {
  constexpr int kDim = numerics::kHeadDim;
  constexpr int kRowBlocks = 2;     // of 16 rows
  constexpr int kColumnBlocks = 8;  // of 8 columns
  constexpr int kWarpRows = 16 * kRowBlocks;
  constexpr int kRowWarps = kTileRows / kWarpRows;
  constexpr int kChunks = kDim / (4 * kChunkChannels);  // of a thread in a row
  static_assert(kRowWarps * (kDim / (8 * kColumnBlocks)) == kTileWarps);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int group = static_cast<int>(threadIdx.x) % kWarp / 4;
  const int quad = static_cast<int>(threadIdx.x) % 4;
  const int first_row = warp % kRowWarps * kWarpRows;
  const int first_column = warp / kRowWarps * 8 * kColumnBlocks;
  RawChunk<kType> rows[kRowBlocks][2][kChunks];
#pragma unroll
  for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 16 * m + 8 * half + group;
      const std::byte* source = tile.source + source_row<kQuery>(row, tile.count) * tile.row_stride;
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        rows[m][half][i] =
            load_chunk<kType, kAligned>(source, 4 * i + quad, !kQuery || row < tile.count);
      }
    }
  }
  const std::uint16_t* basis = a.basis<std::uint16_t>(bh);
  const float* offsets = a.key_offsets(bh);
#pragma unroll
  for (int n = 0; n < kColumnBlocks; ++n) {
    const int column = first_column + 8 * n;
    const auto* high = reinterpret_cast<const uint4*>(basis + (column + group) * kDim) + quad;
    const uint4* low = high + kDim * kDim * sizeof(std::uint16_t) / sizeof(uint4);
    float sums[kRowBlocks][4] = {};
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
#pragma unroll
      for (int term = 0; term < 2; ++term) {
        const uint4 words = __ldg((term == 0 ? low : high) + 4 * i);
#pragma unroll
        for (int m = 0; m < kRowBlocks; ++m) {
          const std::uint32_t(&upper)[4] = rows[m][0][i].words;
          const std::uint32_t(&lower)[4] = rows[m][1][i].words;
          const std::uint32_t near_rows[4] = {upper[0], lower[0], upper[1], lower[1]};
          const std::uint32_t far_rows[4] = {upper[2], lower[2], upper[3], lower[3]};
          if constexpr (kType == ElementType::float16) {
            ptx::mma_m16n8k16_f16(sums[m], near_rows, words.x, words.y);
            ptx::mma_m16n8k16_f16(sums[m], far_rows, words.z, words.w);
          } else {
            ptx::mma_m16n8k16_bf16(sums[m], near_rows, words.x, words.y);
            ptx::mma_m16n8k16_bf16(sums[m], far_rows, words.z, words.w);
          }
        }
      }
    }
    const int place = column + 2 * quad;
    const float2 offset =
        kQuery ? make_float2(0.0f, 0.0f) : *reinterpret_cast<const float2*>(offsets + place);
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        write_pair<kQuery>(shared, output, first_row + 16 * m + 8 * half + group, place,
                           sums[m][2 * half] - offset.x, sums[m][2 * half + 1] - offset.y);
      }
    }
  }
}

/// Inputs of 32 bits: what the CPU computes, in its order. Means are subtracted from K first, which
/// keeps what is small beside them. A thread has two columns of a quarter of the rows.
template <bool kQuery>
__device__ __forceinline__ void multiply_wide_tile(const Arguments& a, std::int64_t bh,
                                                   const ScoreTile& tile, const AxesOutput& output,
                                                   AxesTile& shared) {
  constexpr int kDim = numerics::kHeadDim;
  constexpr int kRows = 8;  // that share a load of the matrix
  constexpr int kColumnPairs = kDim / 2;
  constexpr int kRowThreadsWide = kTileThreads / kColumnPairs;
  const int column = static_cast<int>(threadIdx.x) % kColumnPairs * 2;
  const float* basis = a.basis<float>(bh) + column;
  const float* means = a.plan(bh).key_means;
  for (int first = static_cast<int>(threadIdx.x) / kColumnPairs * kRows; first < kTileRows;
       first += kRowThreadsWide * kRows) {
    const float* sources[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      int row = source_row<kQuery>(first + r, tile.count);
      if (row >= tile.count) row = 0;  // padding of Q, which is written as zeros
      sources[r] = reinterpret_cast<const float*>(tile.source + row * tile.row_stride);
    }
    float sums[kRows][2] = {};
    for (int c = 0; c < kDim; ++c) {
      const float2 u = *reinterpret_cast<const float2*>(basis + c * kDim);
      const float mean = kQuery ? 0.0f : means[c];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float x = kQuery ? __ldg(sources[r] + c) : __ldg(sources[r] + c) - mean;
        sums[r][0] = __fmaf_rn(x, u.x, sums[r][0]);
        sums[r][1] = __fmaf_rn(x, u.y, sums[r][1]);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool is_padding = kQuery && first + r >= tile.count;
      write_pair<kQuery>(shared, output, first + r, column, is_padding ? 0.0f : sums[r][0],
                         is_padding ? 0.0f : sums[r][1]);
    }
  }
}

template <ElementType kType, bool kAligned, bool kQuery>
__device__ __forceinline__ void quantize_tile_on_axes(const Arguments& a, std::int64_t bh,
                                                      std::int64_t tile_index, AxesTile& shared) {
  const numerics::HeadPlan& plan = a.plan(bh);
  const Source& source = kQuery ? a.q : a.k;
  const std::int64_t first = tile_index * kTileRows;
  const ScoreTile tile{source.head(bh, a.problem.heads) + first * source.row_stride,
                       source.row_stride,
                       rows_in_tile(kQuery ? a.problem.queries : a.problem.keys, tile_index),
                       kQuery ? a.query_row(bh, first) : a.key_row(bh, first)};
  const int steps = plan.scores.extra_steps;
  const AxesOutput output{kQuery ? plan.scores.query_multiplier : plan.scores.key_multiplier,
                          steps * numerics::kResidualChannelsPerStep};
  if (kQuery && tile.count == 0) {  // no row may be read
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * numerics::kHeadDim / 2;
         i += kTileThreads) {
      write_pair<kQuery>(shared, output, i / (numerics::kHeadDim / 2),
                         i % (numerics::kHeadDim / 2) * 2, 0.0f, 0.0f);
    }
  } else if constexpr (kType == ElementType::float32) {
    multiply_wide_tile<kQuery>(a, bh, tile, output, shared);
  } else {
    multiply_tile<kType, kAligned, kQuery>(a, bh, tile, output, shared);
  }
  __syncthreads();
  store_tile(shared, tile.codes, steps, [&](int step) {
    return kQuery ? a.query_columns(step, bh, first) : a.key_columns(step, bh, first);
  });
}

/// Blocks per head: tiles of Q and K, padding included. Those of other heads have nothing to do.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kTileThreads)
    quantize_on_axes(const __grid_constant__ Arguments a) {
  __shared__ AxesTile shared;
  ptx::griddepcontrol_launch_dependents();
  const std::int64_t queries = a.block_layout.query_rows / kTileRows;
  const HeadBlock block(queries + a.workspace_layout.key_tiles);
  ptx::griddepcontrol_wait();
  if (a.plan(block.bh).scores.axes == 0) return;
  if (block.index < queries) {
    quantize_tile_on_axes<kType, kAligned, true>(a, block.bh, block.index, shared);
  } else {
    quantize_tile_on_axes<kType, kAligned, false>(a, block.bh, block.index - queries, shared);
  }
}

}  // namespace openvc::cuda::prepare
