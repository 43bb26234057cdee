// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/device/basis_product.cuh"
#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/axes_tiles.cuh"
#include "cuda/prepare/quantize.cuh"
#include "cuda/prepare/quantize_values.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/ptx/cvt.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "numerics/key_permutation.hpp"
#include "numerics/qk_quantize.hpp"

// Codes and residual columns of tensors on principal axes, for inputs of 16 bits: rows times the
// basis of the head, which are exact operands of the tensor cores both. Sums are binary32 in the
// order of the hardware: bytes differ from those of the CPU, which sums in the order of the
// channels, only where a product lies within the rounding of its sum from a tie of E4M3.
//
// A block stays, so that a basis is loaded once for many tiles, and the next tile is on its way to
// shared memory while it works on another. A thread gets eight neighbouring columns of a row, or of
// V eight neighbouring slots of an axis, and writes their codes as they are.
namespace openvc::cuda::prepare {

static_assert(device::kProductRows == kTileRows && device::kProductThreads == kTileThreads);
static_assert(device::kUnitElements == kChunkChannels);

struct OnAxesStorage {
  device::OperandTile basis;
  device::SecondTerms second_terms;
  device::OperandTile rows[2];
  float offsets[numerics::kHeadDim];  // the means that are removed, times the basis
};

__device__ __forceinline__ HeadTokens tokens_of(const Arguments& a, const AxesTile& at) {
  if (at.tensor == Tensor::query) return a.queries(at.bh);
  return a.keys(at.tensor == Tensor::key ? a.k : a.v, at.bh);
}

template <bool kAligned>
__device__ __forceinline__ void start_tile(const Arguments& a, const AxesTile& at,
                                           device::OperandTile& tile) {
  const TileTokens tokens(tokens_of(a, at), at.tile);
  if (at.tensor != Tensor::query && tokens.count == 0) return;  // behind the keys of its sequence
  tokens.visit_rows([&](const auto& rows) {
    device::start_rows<kAligned>(
        [&](int row) -> device::RowSource {
          if (at.tensor == Tensor::key) row = source_row<false>(row, tokens.count);
          const bool exists = row < tokens.count;
          return {exists ? rows.row(row, true) : tokens.tokens.first, exists};
        },
        tokens.tokens.chunks, tile);
  });
}

/// What rounding to codes left of eight elements, and their values, scaled for residual columns.
struct ResidualUnit {
  uint2 low;
  uint2 high;

  __device__ ResidualUnit(const Chunk& x, uint2 codes) {
    constexpr float kLow = numerics::exp2_int(numerics::kResidualBalance);
    constexpr float kHigh = numerics::exp2_int(-numerics::kResidualBalance);
    Chunk lows;
    Chunk highs;
#pragma unroll
    for (int c = 0; c < kChunkChannels; c += 2) {
      const std::uint32_t word = c < kChunkChannels / 2 ? codes.x : codes.y;
      const float2 values = decode_pair(static_cast<std::uint16_t>(word >> (c % 4 * 8)));
      lows[c] = (x[c] - values.x) * kLow;
      lows[c + 1] = (x[c + 1] - values.y) * kLow;
      highs[c] = values.x * kHigh;
      highs[c + 1] = values.y * kHigh;
    }
    low = encode_chunk(lows);
    high = encode_chunk(highs);
  }
};

/// How a head's products become codes.
struct AxesScale {
  float multiplier;
  int steps;  // of residual columns
};

/// Codes and residual columns of a tile of Q or K.
template <ElementType kType, bool kQuery>
__device__ __forceinline__ void write_score_tile(const Arguments& a, const AxesTile& at,
                                                 const AxesScale& scale,
                                                 const device::OperandTile& rows,
                                                 const OnAxesStorage& shared) {
  constexpr int kStepChannels = numerics::kResidualChannelsPerStep;
  const device::ProductThread thread;
  device::RowProducts sums = {};
  constexpr bool kFloat16 = kType == ElementType::float16;
  // The axes of few steps lie in the first group of columns; the others have no second term.
  constexpr int kStepsOfGroup = device::kGroupColumns / kStepChannels;
  if (thread.first_column == 0 && scale.steps <= kStepsOfGroup) {
    device::multiply_rows<kFloat16, device::kDepths, 1>(rows, shared.second_terms, sums);
  } else if (thread.first_column == 0) {
    device::multiply_rows<kFloat16>(rows, shared.second_terms, sums);
  }
  device::multiply_rows<kFloat16>(rows, shared.basis, sums);
  const std::int64_t row = at.tile * kTileRows + thread.first_row + thread.group;
  std::byte* codes = kQuery ? a.query_row(at.bh, row) : a.key_row(at.bh, row);
#pragma unroll
  for (int g = 0; g < device::kColumnGroups; ++g) {
    const int column =
        thread.first_column + device::kGroupColumns * g + thread.quad * kChunkChannels;
    const int step = column / kStepChannels;
    std::byte* columns = nullptr;
    if (step < scale.steps) {
      columns = (kQuery ? a.query_columns(step, at.bh, row) : a.key_columns(step, at.bh, row)) +
                column % kStepChannels;
    }
    Chunk offsets = {};
    if constexpr (!kQuery) load_table(shared.offsets, column / kChunkChannels, offsets);
#pragma unroll
    for (int i = 0; i < device::kWarpRows / 8; ++i) {
      Chunk x;
#pragma unroll
      for (int c = 0; c < kChunkChannels; ++c) {
        x[c] = (sums[i / 2][4 * g + c / 2][i % 2 * 2 + c % 2] - offsets[c]) * scale.multiplier;
      }
      const uint2 unit = encode_chunk(x);
      *reinterpret_cast<uint2*>(codes + 8 * i * numerics::kHeadDim + column) = unit;
      if (columns == nullptr) continue;
      const ResidualUnit residuals(x, unit);
      std::byte* target = columns + 8 * i * numerics::kColumnsPerStep;
      constexpr int kLow = kQuery ? numerics::query_low_column(0) : numerics::key_low_column(0);
      constexpr int kHigh = kQuery ? numerics::query_high_column(0) : numerics::key_high_column(0);
      *reinterpret_cast<uint2*>(target + kLow) = residuals.low;
      *reinterpret_cast<uint2*>(target + kHigh) = residuals.high;
    }
  }
}

/// A tile of V: codes of all axes, residual columns of the strongest, rows of ones.
template <ElementType kType>
__device__ __forceinline__ void write_value_tile(const Arguments& a, const AxesTile& at,
                                                 float multiplier, const device::OperandTile& rows,
                                                 const OnAxesStorage& shared) {
  const device::ProductThread thread;
  device::ColumnProducts sums = {};
  constexpr bool kFloat16 = kType == ElementType::float16;
  const auto key_of = [&](int n, int index) {
    return thread.first_row + numerics::key_of_slot(device::dealt_row(n, index));
  };
  constexpr int kSecondTermAxes = 16;  // the least that a product takes
  static_assert(numerics::kValueAxes <= kSecondTermAxes);
  if (thread.first_column == 0) {
    device::multiply_columns<kFloat16, kSecondTermAxes>(rows, shared.second_terms, key_of, sums);
  }
  device::multiply_columns<kFloat16>(rows, shared.basis, key_of, sums);
  const int count = rows_in_tile(a.problem_of(at.bh).keys, at.tile);
  constexpr int kWords = kChunkChannels / kWordSlots;
  const int first_slot = thread.first_row + thread.quad * kChunkChannels;
  std::uint32_t present[kWords] = {};  // 0xFF in the bytes of keys that exist
#pragma unroll
  for (int i = 0; i < kChunkChannels; ++i) {
    if (numerics::key_of_slot(first_slot + i) < count)
      present[i / kWordSlots] |= 0xFFu << (i % 4 * 8);
  }
  std::byte* block = a.value_block(at.bh, at.tile);
  const auto store = [&](int row, const std::uint32_t(&words)[kWords]) {
    *reinterpret_cast<uint2*>(block + row * numerics::kKeyBlock + first_slot) =
        make_uint2(words[0] & present[0], words[1] & present[1]);
  };
#pragma unroll
  for (int i = 0; i < device::kWarpColumns / 8; ++i) {
    const int axis = thread.first_column + 8 * i + thread.group;
    const float offset = shared.offsets[axis];
    float coordinates[kWords][kWordSlots];
    std::uint32_t words[kWords];
#pragma unroll
    for (int c = 0; c < kChunkChannels; ++c) {
      const float x = sums[i / 2][c / 2][i % 2 * 2 + c % 2];
      coordinates[c / kWordSlots][c % kWordSlots] = (x - offset) * multiplier;
    }
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = encode_word(coordinates[w]);
    store(axis, words);
    static_assert(numerics::kValueColumns <= 8, "axes of the first block of rows");
    if (i > 0 || axis >= numerics::kValueColumns) continue;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      subtract_codes(coordinates[w], words[w]);
      words[w] = encode_word(coordinates[w]);
    }
    store(numerics::kHeadDim + axis, words);
  }
  auto* ones = reinterpret_cast<uint4*>(block + a.block_layout.ones_row() * numerics::kKeyBlock);
  const int units = a.block_layout.format.ones_rows * kChannelUnits;
  for (int i = static_cast<int>(threadIdx.x); i < units; i += kTileThreads) {
    ones[i] = ones_unit(i % kChannelUnits, count);
  }
}

/// Loads the basis of a part of a head; all threads. Means of Q are not removed.
template <ElementType kType>
__device__ __forceinline__ void load_basis(const Arguments& a, std::int64_t bh, HeadPart part,
                                           OnAxesStorage& shared) {
  constexpr int kElements = numerics::kHeadDim * numerics::kHeadDim;
  static_assert(numerics::kMaxAxes == device::kWarpColumns);
  const std::uint16_t* basis = a.basis<std::uint16_t>(part, bh);
  const auto same = [](std::uint32_t pair) { return pair; };
  device::load_basis(basis, device::kRowUnits, shared.basis, same);
  device::load_basis(basis + kElements, device::kRowUnits, shared.second_terms, same);
  __syncthreads();
  const auto column = static_cast<int>(threadIdx.x);
  if (column < numerics::kHeadDim) {
    const numerics::HeadPlan& plan = a.plan(bh);
    const float* means = part == kScores ? plan.key_means : plan.value_means;
    float sum = 0.0f;
#pragma unroll 4
    for (int i = 0; i < device::kRowUnits; ++i) {
      const uint4 unit = shared.basis.unit(column, i);
      RawChunk<kType> raw{{unit.x, unit.y, unit.z, unit.w}};
      Chunk x;
      Chunk mean;
      to_floats<kType>(raw, x);
      load_table(means, i, mean);
#pragma unroll
      for (int c = 0; c < kChunkChannels; ++c) sum = __fmaf_rn(mean[c], x[c], sum);
      if (column >= device::kWarpColumns) continue;
      const uint4 low = shared.second_terms.unit(column, i);
      to_floats<kType>(RawChunk<kType>{{low.x, low.y, low.z, low.w}}, x);
#pragma unroll
      for (int c = 0; c < kChunkChannels; ++c) sum = __fmaf_rn(mean[c], x[c], sum);
    }
    shared.offsets[column] = sum;
  }
  __syncthreads();
}

__device__ __forceinline__ AxesScale axes_scale(const numerics::HeadPlan& plan, Tensor tensor) {
  if (tensor == Tensor::value) return {plan.value_multipliers[0], 0};  // axes share one
  return {tensor == Tensor::query ? plan.scores.query_multiplier : plan.scores.key_multiplier,
          plan.scores.extra_steps};
}

inline constexpr int kOnAxesBlocksPerSm = 2;

/// Any number of blocks, sizeof(OnAxesStorage) bytes of shared memory.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kTileThreads, kOnAxesBlocksPerSm)
    quantize_on_axes(const __grid_constant__ Arguments a) {
  auto& shared = ptx::dynamic_shared<OnAxesStorage>();
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  AxesTiles tiles(a);
  if (tiles.count() == 0) return;
  start_tile<kAligned>(a, tiles.current(), shared.rows[0]);
  AxesScale scale{};
  AxesTile last{.bh = -1};
  for (std::int64_t i = 0; i < tiles.count(); ++i) {
    const AxesTile at = tiles.current();
    const device::OperandTile& rows = shared.rows[i % 2];
    ptx::cp_async_wait_group<0>();
    __syncthreads();  // the tile is here, and what is in the other place is done with
    if (i + 1 < tiles.count()) {
      tiles.advance();
      start_tile<kAligned>(a, tiles.current(), shared.rows[(i + 1) % 2]);
    }
    if (at.bh != last.bh || at.tensor != last.tensor) {
      if (at.bh != last.bh || part_of(at.tensor) != part_of(last.tensor)) {
        load_basis<kType>(a, at.bh, part_of(at.tensor), shared);
      }
      scale = axes_scale(a.plan(at.bh), at.tensor);
      last = at;
    }
    const bool is_behind_keys = at.tensor != Tensor::query && a.with_bounds &&
                                rows_in_tile(a.problem_of(at.bh).keys, at.tile) == 0;
    if (is_behind_keys) continue;
    switch (at.tensor) {
      case Tensor::query:
        write_score_tile<kType, true>(a, at, scale, rows, shared);
        break;
      case Tensor::key:
        write_score_tile<kType, false>(a, at, scale, rows, shared);
        break;
      case Tensor::value:
        write_value_tile<kType>(a, at, scale.multiplier, rows, shared);
        break;
    }
  }
}

}  // namespace openvc::cuda::prepare
