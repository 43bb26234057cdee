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

// Codes and residual columns of Q and K, or of V, of heads that are on principal axes: a tile times
// the head's matrix. Inputs of 16 bits are exact operands of the tensor cores, and so are the two
// terms of the matrix; sums are binary32 in the order of the hardware. Bytes differ from those of
// the CPU, which sums in the order of the channels, only where a product lies within the rounding
// of its sum from a tie of E4M3.
namespace openvc::cuda::prepare {

/// Rows of codes in shared memory; the padding spreads them over the banks.
inline constexpr int kCodeStride = numerics::kHeadDim + 16;

struct AxesTile {
  alignas(16) std::uint8_t codes[kTileRows][kCodeStride];
  alignas(16) std::uint8_t columns[numerics::kMaxExtraSteps][kTileRows][numerics::kColumnsPerStep];
};

/// Codes of a tile of V and of its residual columns, [axis][slot of a key].
struct ValueAxesTile {
  static constexpr int kRows = numerics::kHeadDim + numerics::kValueColumns;
  static constexpr int kStride = kTileRows + 16;
  alignas(16) std::uint8_t codes[kRows][kStride];
};

union OnAxesStorage {
  AxesTile scores;
  ValueAxesTile values;
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
template <ElementType kType, bool kAligned, bool kZeroPadding, class Emit>
__device__ __forceinline__ void multiply_tile(const ScoreTile& tile, const std::uint16_t* basis,
                                              const float* offsets, const Emit& emit) {
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
      const std::byte* source =
          tile.source + source_row<kZeroPadding>(row, tile.count) * tile.row_stride;
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        rows[m][half][i] =
            load_chunk<kType, kAligned>(source, 4 * i + quad, !kZeroPadding || row < tile.count);
      }
    }
  }
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
    const float2 offset = offsets == nullptr ? make_float2(0.0f, 0.0f)
                                             : *reinterpret_cast<const float2*>(offsets + place);
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        emit(first_row + 16 * m + 8 * half + group, place, sums[m][2 * half] - offset.x,
             sums[m][2 * half + 1] - offset.y);
      }
    }
  }
}

/// Inputs of 32 bits: what the CPU computes, in its order. Means are subtracted from K first, which
/// keeps what is small beside them. A thread has two columns of a quarter of the rows.
template <bool kZeroPadding, class Emit>
__device__ __forceinline__ void multiply_wide_tile(const ScoreTile& tile, const float* matrix,
                                                   const float* means, const Emit& emit) {
  constexpr int kDim = numerics::kHeadDim;
  constexpr int kRows = 8;  // that share a load of the matrix
  constexpr int kColumnPairs = kDim / 2;
  constexpr int kRowThreadsWide = kTileThreads / kColumnPairs;
  const int column = static_cast<int>(threadIdx.x) % kColumnPairs * 2;
  const float* basis = matrix + column;
  for (int first = static_cast<int>(threadIdx.x) / kColumnPairs * kRows; first < kTileRows;
       first += kRowThreadsWide * kRows) {
    const float* sources[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      int row = source_row<kZeroPadding>(first + r, tile.count);
      if (row >= tile.count) row = 0;  // padding that is written as zeros
      sources[r] = reinterpret_cast<const float*>(tile.source + row * tile.row_stride);
    }
    float sums[kRows][2] = {};
    for (int c = 0; c < kDim; ++c) {
      const float2 u = *reinterpret_cast<const float2*>(basis + c * kDim);
      const float mean = means == nullptr ? 0.0f : means[c];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float x = __ldg(sources[r] + c) - mean;
        sums[r][0] = __fmaf_rn(x, u.x, sums[r][0]);
        sums[r][1] = __fmaf_rn(x, u.y, sums[r][1]);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const bool is_padding = kZeroPadding && first + r >= tile.count;
      emit(first + r, column, is_padding ? 0.0f : sums[r][0], is_padding ? 0.0f : sums[r][1]);
    }
  }
}

/// A tile times the basis of a part of its head. `means` are subtracted first.
template <ElementType kType, bool kAligned, bool kZeroPadding, class Emit>
__device__ __forceinline__ void multiply_by_basis(const Arguments& a, std::int64_t bh, int part,
                                                  const ScoreTile& tile, const float* means,
                                                  const Emit& emit) {
  if constexpr (kType == ElementType::float32) {
    multiply_wide_tile<kZeroPadding>(tile, a.basis<float>(part, bh), means, emit);
  } else {
    multiply_tile<kType, kAligned, kZeroPadding>(tile, a.basis<std::uint16_t>(part, bh),
                                                 means == nullptr ? nullptr : a.offsets(part, bh),
                                                 emit);
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
  const auto emit = [&](int row, int column, float x, float y) {
    write_pair<kQuery>(shared, output, row, column, x, y);
  };
  if (kQuery && tile.count == 0) {  // no row may be read
    constexpr int kPairs = numerics::kHeadDim / 2;
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * kPairs; i += kTileThreads) {
      emit(i / kPairs, i % kPairs * 2, 0.0f, 0.0f);
    }
  } else {
    multiply_by_basis<kType, kAligned, kQuery>(a, bh, kScores, tile,
                                               kQuery ? nullptr : plan.key_means, emit);
  }
  __syncthreads();
  store_tile(shared, tile.codes, steps, [&](int step) {
    return kQuery ? a.query_columns(step, bh, first) : a.key_columns(step, bh, first);
  });
}

/// Two neighbouring axes of one key of V.
__device__ __forceinline__ void write_value_pair(ValueAxesTile& shared, float multiplier, int key,
                                                 int axis, float first, float second) {
  const float x = first * multiplier;
  const float y = second * multiplier;
  const int slot = numerics::slot_of_key(key);
  const std::uint16_t codes = ptx::cvt_rn_satfinite_e4m3x2_f32(x, y);
  shared.codes[axis][slot] = static_cast<std::uint8_t>(codes & 0xFFu);
  shared.codes[axis + 1][slot] = static_cast<std::uint8_t>(codes >> 8);
  if (axis >= numerics::kValueColumns) return;
  const float2 values = decode_pair(codes);
  const std::uint16_t low = ptx::cvt_rn_satfinite_e4m3x2_f32(x - values.x, y - values.y);
  std::uint8_t(&column)[ValueAxesTile::kStride] = shared.codes[numerics::kHeadDim + axis];
  column[slot] = static_cast<std::uint8_t>(low & 0xFFu);
  if (axis + 1 < numerics::kValueColumns) {
    shared.codes[numerics::kHeadDim + axis + 1][slot] = static_cast<std::uint8_t>(low >> 8);
  }
}

/// A tile of V: codes of all axes, residual columns of the strongest, rows of ones.
template <ElementType kType, bool kAligned>
__device__ __forceinline__ void quantize_values_on_axes(const Arguments& a, std::int64_t bh,
                                                        std::int64_t tile_index,
                                                        ValueAxesTile& shared) {
  const numerics::HeadPlan& plan = a.plan(bh);
  const std::int64_t first = tile_index * kTileRows;
  const ScoreTile tile{a.v.head(bh, a.problem.heads) + first * a.v.row_stride, a.v.row_stride,
                       rows_in_tile(a.problem.keys, tile_index), a.value_block(bh, tile_index)};
  const float multiplier = plan.value_multipliers[0];  // axes share one
  multiply_by_basis<kType, kAligned, true>(
      a, bh, kValues, tile, plan.value_means, [&](int key, int axis, float x, float y) {
        const bool present = key < tile.count;
        write_value_pair(shared, multiplier, key, axis, present ? x : 0.0f, present ? y : 0.0f);
      });
  __syncthreads();
  auto* out = reinterpret_cast<uint4*>(tile.codes);
  constexpr int kCodeUnits = ValueAxesTile::kRows * kChannelUnits;
  const int units = kCodeUnits + a.block_layout.format.ones_rows * kChannelUnits;
  for (int i = static_cast<int>(threadIdx.x); i < units; i += kTileThreads) {
    out[i] = i < kCodeUnits
                 ? *reinterpret_cast<const uint4*>(
                       &shared.codes[i / kChannelUnits][i % kChannelUnits * sizeof(uint4)])
                 : ones_unit(i % kChannelUnits, tile.count);
  }
}

/// Thread blocks per SM that registers must leave room for: a warp holds 32 rows in 64 of them, and
/// the compiler would otherwise take a few more than half.
inline constexpr int kOnAxesBlocksPerSm = 2;

/// Blocks per head: tiles of Q, K and V, padding included. Those that are not on axes have nothing
/// to do.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kTileThreads, kOnAxesBlocksPerSm)
    quantize_on_axes(const __grid_constant__ Arguments a) {
  __shared__ OnAxesStorage shared;
  ptx::griddepcontrol_launch_dependents();
  const std::int64_t queries = a.block_layout.query_rows / kTileRows;
  const std::int64_t keys = a.workspace_layout.key_tiles;
  const HeadBlock block(queries + 2 * keys);
  ptx::griddepcontrol_wait();
  const bool of_scores = block.index < queries + keys;
  if (!is_on_axes(a, block.bh, of_scores ? kScores : kValues)) return;
  if (block.index < queries) {
    quantize_tile_on_axes<kType, kAligned, true>(a, block.bh, block.index, shared.scores);
  } else if (of_scores) {
    quantize_tile_on_axes<kType, kAligned, false>(a, block.bh, block.index - queries,
                                                  shared.scores);
  } else {
    quantize_values_on_axes<kType, kAligned>(a, block.bh, block.index - queries - keys,
                                             shared.values);
  }
}

}  // namespace openvc::cuda::prepare
