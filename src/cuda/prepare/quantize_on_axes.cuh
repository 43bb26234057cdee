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
#include "numerics/key_permutation.hpp"
#include "numerics/qk_quantize.hpp"

// Codes and residual columns of tensors on principal axes, for inputs of 16 bits: rows times the
// basis of the head, which are exact operands of the tensor cores both. Sums are binary32 in the
// order of the hardware: bytes differ from those of the CPU, which sums in the order of the
// channels, only where a product lies within the rounding of its sum from a tie of E4M3.
//
// A block stays, so that a basis is loaded once for many tiles, and a warp's rows of the next tile
// are on their way while it works on others. A thread gets eight neighbouring columns of a row, or
// of V four neighbouring slots of an axis, and writes their codes as they are.
namespace openvc::cuda::prepare {

/// Rows of a tile that are a warp's: a group of the key permutation.
inline constexpr int kWarpRows = kTileRows / kTileWarps;
static_assert(kWarpRows == 16 && kWarpRows == numerics::kKeyGroup);
/// Axes that a warp computes at a time.
inline constexpr int kAxesAtOnce = 16;

struct OnAxesStorage {
  device::BasisTile basis;
  float offsets[numerics::kHeadDim];  // the means that are removed, times the basis
};

/// A thread's two rows of those that a warp multiplies.
struct RowSource {
  const std::byte* rows[2];
  bool present[2];
};

__device__ __forceinline__ RowSource row_source(const Arguments& a, const AxesTile& at) {
  const device::QuadLane lane;
  const bool is_query = at.tensor == Tensor::query;
  const Source& tensor = is_query ? a.q : (at.tensor == Tensor::key ? a.k : a.v);
  const std::byte* first =
      tensor.head(at.bh, a.problem.heads) + at.tile * kTileRows * tensor.row_stride;
  const int count = rows_in_tile(is_query ? a.problem.queries : a.problem.keys, at.tile);
  RowSource source;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    int row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows + lane.group + 8 * half;
    source.present[half] = row < count || at.tensor == Tensor::key;
    if (at.tensor == Tensor::key) row = source_row<false>(row, count);
    source.rows[half] = first + row * tensor.row_stride;
  }
  return source;
}

template <ElementType kType, bool kAligned>
__device__ __forceinline__ void load_rows(const RowSource& source, device::RowPart (&parts)[2]) {
  static_assert(kChunkChannels == device::kUnitElements);
  const device::QuadLane lane;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < device::kThreadUnits; ++i) {
      const RawChunk<kType> chunk = load_chunk<kType, kAligned>(
          source.rows[half], device::kQuadLanes * i + lane.quad, source.present[half]);
#pragma unroll
      for (int w = 0; w < RawChunk<kType>::kWords; ++w) parts[half][i][w] = chunk.words[w];
    }
  }
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

/// A warp's rows of a tile of Q or K.
template <ElementType kType, bool kQuery>
__device__ __forceinline__ void write_score_rows(const Arguments& a, const AxesTile& at,
                                                 const device::RowPart (&parts)[2],
                                                 const AxesScale& scale,
                                                 const OnAxesStorage& shared) {
  constexpr int kStepChannels = numerics::kResidualChannelsPerStep;
  static_assert(device::kColumnsAtOnce == 2 * kStepChannels);
  const device::QuadLane lane;
  const std::int64_t row =
      at.tile * kTileRows + threadIdx.x / kWarp * kWarpRows + lane.group;  // and 8 further
  std::byte* codes = kQuery ? a.query_row(at.bh, row) : a.key_row(at.bh, row);
  const int half_unit = lane.quad % 2 * kChunkChannels;  // of the channels of a step
#pragma unroll 1
  for (int first = 0; first < numerics::kHeadDim; first += device::kColumnsAtOnce) {
    float sums[4][4] = {};
    device::multiply_rows<kType == ElementType::float16>(parts, shared.basis, first, sums);
    const int column = first + lane.quad * kChunkChannels;
    const int step = column / kStepChannels;
    std::byte* columns = nullptr;
    if (step < scale.steps) {
      columns = kQuery ? a.query_columns(step, at.bh, row) : a.key_columns(step, at.bh, row);
    }
    Chunk offsets = {};
    if constexpr (!kQuery) load_table(shared.offsets, column / kChunkChannels, offsets);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Chunk x;
#pragma unroll
      for (int c = 0; c < kChunkChannels; ++c) {
        x[c] = (sums[c / 2][2 * half + c % 2] - offsets[c]) * scale.multiplier;
      }
      const uint2 unit = encode_chunk(x);
      *reinterpret_cast<uint2*>(codes + 8 * half * numerics::kHeadDim + column) = unit;
      if (columns == nullptr) continue;
      const ResidualUnit residuals(x, unit);
      std::byte* target = columns + 8 * half * numerics::kColumnsPerStep + half_unit;
      constexpr int kLow = kQuery ? numerics::query_low_column(0) : numerics::key_low_column(0);
      constexpr int kHigh = kQuery ? numerics::query_high_column(0) : numerics::key_high_column(0);
      *reinterpret_cast<uint2*>(target + kLow) = residuals.low;
      *reinterpret_cast<uint2*>(target + kHigh) = residuals.high;
    }
  }
}

/// A warp's keys of a tile of V: codes of all axes, residual columns of the strongest; the last
/// warp's lanes write the rows of ones.
template <ElementType kType>
__device__ __forceinline__ void write_value_rows(const Arguments& a, const AxesTile& at,
                                                 const device::RowPart (&parts)[2],
                                                 float multiplier, const OnAxesStorage& shared) {
  const device::QuadLane lane;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int count = rows_in_tile(a.problem.keys, at.tile);
  const int slot = warp * kWarpRows + lane.quad * kWordSlots;
  std::uint32_t present = 0;  // 0xFF in the bytes of keys that exist
#pragma unroll
  for (int i = 0; i < kWordSlots; ++i) {
    if (numerics::key_of_slot(slot + i) < count) present |= 0xFFu << (8 * i);
  }
  std::byte* block = a.value_block(at.bh, at.tile);
  const auto store = [&](int row, std::uint32_t word) {
    *reinterpret_cast<std::uint32_t*>(block + row * numerics::kKeyBlock + slot) = word & present;
  };
#pragma unroll 1
  for (int first = 0; first < numerics::kHeadDim; first += kAxesAtOnce) {
    float sums[2][4] = {};
    device::multiply_columns<kType == ElementType::float16>(shared.basis, first, parts, sums);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int axis = first + 8 * half + lane.group;
      const float offset = shared.offsets[axis];
      float coordinates[kWordSlots];
#pragma unroll
      for (int i = 0; i < kWordSlots; ++i) {
        coordinates[i] = (sums[i / 2][2 * half + i % 2] - offset) * multiplier;
      }
      const std::uint32_t codes = encode_word(coordinates);
      store(axis, codes);
      if (axis >= numerics::kValueColumns) continue;
      subtract_codes(coordinates, codes);
      store(numerics::kHeadDim + axis, encode_word(coordinates));
    }
  }
  if (warp != kTileWarps - 1) return;
  auto* ones = reinterpret_cast<uint4*>(block + a.block_layout.ones_row() * numerics::kKeyBlock);
  const int units = a.block_layout.format.ones_rows * kChannelUnits;
  for (int i = static_cast<int>(threadIdx.x) % kWarp; i < units; i += kWarp) {
    ones[i] = ones_unit(i % kChannelUnits, count);
  }
}

/// Loads the basis of a part of a head; all threads. Means of Q are not removed.
template <ElementType kType>
__device__ __forceinline__ void load_basis(const Arguments& a, std::int64_t bh, HeadPart part,
                                           OnAxesStorage& shared) {
  __syncthreads();  // behind those who still multiply by the one before
  device::load_basis(a.basis<std::uint16_t>(part, bh), shared.basis,
                     [](std::uint32_t pair) { return pair; });
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

/// Two blocks a multiprocessor: a thread holds the rows that it multiplies and the next ones.
inline constexpr int kOnAxesBlocksPerSm = 2;

/// Any number of blocks.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kTileThreads, kOnAxesBlocksPerSm)
    quantize_on_axes(const __grid_constant__ Arguments a) {
  __shared__ OnAxesStorage shared;
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  AxesTiles tiles(a);
  if (tiles.count() == 0) return;
  device::RowPart parts[2];
  load_rows<kType, kAligned>(row_source(a, tiles.current()), parts);
  AxesScale scale{};
  AxesTile last{.bh = -1};
  for (std::int64_t left = tiles.count(); left > 0; --left) {
    const AxesTile at = tiles.current();
    if (at.bh != last.bh || at.tensor != last.tensor) {
      if (at.bh != last.bh || part_of(at.tensor) != part_of(last.tensor)) {
        load_basis<kType>(a, at.bh, part_of(at.tensor), shared);
      }
      scale = axes_scale(a.plan(at.bh), at.tensor);
      last = at;
    }
    if (left > 1) tiles.advance();
    device::RowPart next_parts[2];
    load_rows<kType, kAligned>(row_source(a, tiles.current()), next_parts);
    switch (at.tensor) {
      case Tensor::query:
        write_score_rows<kType, true>(a, at, parts, scale, shared);
        break;
      case Tensor::key:
        write_score_rows<kType, false>(a, at, parts, scale, shared);
        break;
      case Tensor::value:
        write_value_rows<kType>(a, at, parts, scale.multiplier, shared);
        break;
    }
    device::move_rows(next_parts, parts);
  }
}

}  // namespace openvc::cuda::prepare
