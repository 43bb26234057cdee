// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/axes_tiles.cuh"
#include "cuda/prepare/quantize.cuh"
#include "cuda/prepare/quantize_values.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/ptx/cvt.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "numerics/qk_quantize.hpp"

// Codes and residual columns of tensors on principal axes, for inputs of 32 bits: a tile times the
// basis of its head, as the CPU computes it, in its order. Means are subtracted first, which keeps
// what is small beside them.
namespace openvc::cuda::prepare {

/// Rows of codes in shared memory; the padding spreads them over the banks.
inline constexpr int kCodeStride = numerics::kHeadDim + 16;

struct WideScoreTile {
  alignas(16) std::uint8_t codes[kTileRows][kCodeStride];
  alignas(16) std::uint8_t columns[numerics::kMaxExtraSteps][kTileRows][numerics::kColumnsPerStep];
};

/// Codes of a tile of V and of its residual columns, [axis][slot of a key].
struct WideValueTile {
  static constexpr int kRows = numerics::kHeadDim + numerics::kValueColumns;
  static constexpr int kStride = kTileRows + 16;
  alignas(16) std::uint8_t codes[kRows][kStride];
};

union WideStorage {
  WideScoreTile scores;
  WideValueTile values;
};

/// How elements of the product become bytes.
struct WideOutput {
  float multiplier;
  int residual_columns;
};

/// Bytes of two neighbouring elements of a row.
template <bool kQuery>
__device__ __forceinline__ void write_pair(WideScoreTile& shared, const WideOutput& output, int row,
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
__device__ __forceinline__ void store_tile(const WideScoreTile& shared, std::byte* codes, int steps,
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

/// A tile times the basis; a thread has two columns of a quarter of the rows.
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
      sources[r] = reinterpret_cast<const float*>(tile.row(row));
    }
    float sums[kRows][2] = {};
    for (int c = 0; c < tile.tokens.chunks * kChunkChannels; ++c) {
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

template <bool kQuery>
__device__ __forceinline__ void quantize_wide_scores(const Arguments& a, std::int64_t bh,
                                                     std::int64_t tile_index,
                                                     WideScoreTile& shared) {
  const numerics::HeadPlan& plan = a.plan(bh);
  const std::int64_t first = tile_index * kTileRows;
  const ScoreTile tile{{kQuery ? a.queries(bh) : a.keys(a.k, bh), tile_index},
                       kQuery ? a.query_row(bh, first) : a.key_row(bh, first)};
  if (!kQuery && tile.count == 0) return;  // behind the keys of its sequence
  const int steps = plan.scores.extra_steps;
  const WideOutput output{kQuery ? plan.scores.query_multiplier : plan.scores.key_multiplier,
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
    multiply_wide_tile<kQuery>(tile, a.basis<float>(kScores, bh), kQuery ? nullptr : plan.key_means,
                               emit);
  }
  __syncthreads();
  store_tile(shared, tile.codes, steps, [&](int step) {
    return kQuery ? a.query_columns(step, bh, first) : a.key_columns(step, bh, first);
  });
}

/// Two neighbouring axes of one key of V.
__device__ __forceinline__ void write_value_pair(WideValueTile& shared, float multiplier, int key,
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
  std::uint8_t(&column)[WideValueTile::kStride] = shared.codes[numerics::kHeadDim + axis];
  column[slot] = static_cast<std::uint8_t>(low & 0xFFu);
  if (axis + 1 < numerics::kValueColumns) {
    shared.codes[numerics::kHeadDim + axis + 1][slot] = static_cast<std::uint8_t>(low >> 8);
  }
}

/// A tile of V: codes of all axes, residual columns of the strongest, rows of ones.
__device__ __forceinline__ void quantize_wide_values(const Arguments& a, std::int64_t bh,
                                                     std::int64_t tile_index,
                                                     WideValueTile& shared) {
  const numerics::HeadPlan& plan = a.plan(bh);
  const ScoreTile tile{{a.keys(a.v, bh), tile_index}, a.value_block(bh, tile_index)};
  if (tile.count == 0) return;                         // behind the keys of its sequence
  const float multiplier = plan.value_multipliers[0];  // axes share one
  multiply_wide_tile<true>(tile, a.basis<float>(kValues, bh), plan.value_means,
                           [&](int key, int axis, float x, float y) {
                             const bool present = key < tile.count;
                             write_value_pair(shared, multiplier, key, axis, present ? x : 0.0f,
                                              present ? y : 0.0f);
                           });
  __syncthreads();
  auto* out = reinterpret_cast<uint4*>(tile.codes);
  constexpr int kCodeUnits = WideValueTile::kRows * kChannelUnits;
  const int units = kCodeUnits + a.block_layout.format.ones_rows * kChannelUnits;
  for (int i = static_cast<int>(threadIdx.x); i < units; i += kTileThreads) {
    out[i] = i < kCodeUnits
                 ? *reinterpret_cast<const uint4*>(
                       &shared.codes[i / kChannelUnits][i % kChannelUnits * sizeof(uint4)])
                 : ones_unit(i % kChannelUnits, tile.count);
  }
}

/// Blocks per head: tiles of Q, K and V, padding included. Those that are not on axes have nothing
/// to do.
static __global__ void __launch_bounds__(kTileThreads)
    quantize_wide_on_axes(const __grid_constant__ Arguments a) {
  auto& shared = ptx::static_shared<WideStorage>();
  ptx::griddepcontrol_launch_dependents();
  const std::int64_t queries = a.block_layout.query_rows / kTileRows;
  const std::int64_t keys = a.workspace_layout.key_tiles;
  const HeadBlock block(queries + 2 * keys);
  ptx::griddepcontrol_wait();
  const bool of_scores = block.index < queries + keys;
  if (!is_on_axes(a, block.bh, of_scores ? kScores : kValues)) return;
  if (block.index < queries) {
    quantize_wide_scores<true>(a, block.bh, block.index, shared.scores);
  } else if (of_scores) {
    quantize_wide_scores<false>(a, block.bh, block.index - queries, shared.scores);
  } else {
    quantize_wide_values(a, block.bh, block.index - queries - keys, shared.values);
  }
}

}  // namespace openvc::cuda::prepare
