// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/quantize_values.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "numerics/bits.hpp"
#include "numerics/repair.hpp"

// V residual repair: the choice of the tokens, and the blocks of keys and values that they add.
namespace openvc::cuda::prepare {

inline constexpr int kSelectThreads = 1024;
inline constexpr int kSelectWarps = kSelectThreads / kWarp;

/// A digit of the radix selection; the sign bit is clear, which leaves 31 bits.
struct Digit {
  int shift;
  int bits;
};
inline constexpr int kDigits = 3;
inline constexpr int kMaxBins = 1 << 11;
OPENVC_HD constexpr Digit digit(int i) {
  return i == 0 ? Digit{20, 11} : (i == 1 ? Digit{10, 10} : Digit{0, 10});
}
static_assert(digit(0).shift + digit(0).bits == 31 && digit(0).bits == 11);
static_assert(digit(1).shift + digit(1).bits == digit(0).shift);
static_assert(digit(2).shift + digit(2).bits == digit(1).shift && digit(2).shift == 0);

struct SelectStorage {
  std::uint32_t bins[kMaxBins];
  std::int32_t warp_sums[kSelectWarps];
  std::int32_t warp_ties[kSelectWarps];
  std::uint32_t prefix;
  std::int32_t wanted;
};

__device__ __forceinline__ std::int32_t inclusive_scan(std::int32_t x) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int stride = 1; stride < kWarp; stride *= 2) {
    const std::int32_t other = __shfl_up_sync(kAllLanes, x, stride);
    if (lane >= stride) x += other;
  }
  return x;
}

/// Finds the bin, counted from the largest, that holds the `wanted`-th value; appends it to the
/// prefix and leaves in `wanted` the position inside that bin.
__device__ __forceinline__ void choose_bin(SelectStorage& shared, const Digit& d) {
  constexpr int kBinsPerThread = kMaxBins / kSelectThreads;
  const int bins = 1 << d.bits;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int32_t wanted = shared.wanted;
  std::int32_t counts[kBinsPerThread];
  std::int32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    const int bin = bins - 1 - (static_cast<int>(threadIdx.x) * kBinsPerThread + i);
    counts[i] = bin >= 0 ? static_cast<std::int32_t>(shared.bins[bin]) : 0;
    sum += counts[i];
  }
  const std::int32_t inclusive = inclusive_scan(sum);
  if (threadIdx.x % kWarp == kWarp - 1) shared.warp_sums[warp] = inclusive;
  __syncthreads();
  std::int32_t before = inclusive - sum;
  for (int i = 0; i < warp; ++i) before += shared.warp_sums[i];
#pragma unroll
  for (int i = 0; i < kBinsPerThread; ++i) {
    if (before < wanted && wanted <= before + counts[i]) {
      const int bin = bins - 1 - (static_cast<int>(threadIdx.x) * kBinsPerThread + i);
      shared.prefix |= static_cast<std::uint32_t>(bin) << d.shift;
      shared.wanted = wanted - before;
    }
    before += counts[i];
  }
  __syncthreads();
}

/// Lists the tokens of one head whose residual is repaired, in ascending order: those with the
/// largest energies, ties to the lower index (cpu::select_repair_tokens). Grid (heads),
/// kSelectThreads threads.
static __global__ void __launch_bounds__(kSelectThreads)
    select_repair_tokens(const __grid_constant__ Arguments a) {
  auto& shared = ptx::static_shared<SelectStorage>();
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const float* energies = a.energies(blockIdx.x);
  const auto keys = static_cast<std::int32_t>(a.problem.keys);
  if (threadIdx.x == 0) {
    shared.prefix = 0;
    shared.wanted = static_cast<std::int32_t>(a.problem.repair_rows);
  }
  for (int i = 0; i < kDigits; ++i) {
    const Digit d = digit(i);
    for (int bin = static_cast<int>(threadIdx.x); bin < kMaxBins; bin += kSelectThreads) {
      shared.bins[bin] = 0;
    }
    __syncthreads();
    const std::uint32_t prefix = shared.prefix >> (d.shift + d.bits);
    const std::uint32_t mask = (1u << d.bits) - 1u;
    for (std::int32_t key = static_cast<std::int32_t>(threadIdx.x); key < keys;
         key += kSelectThreads) {
      const std::uint32_t bits = numerics::repair_order(energies[key]);
      if (bits >> (d.shift + d.bits) == prefix) atomicAdd(&shared.bins[bits >> d.shift & mask], 1u);
    }
    __syncthreads();
    choose_bin(shared, d);
  }

  // Every warp lists a contiguous range of tokens, which keeps the list in order.
  const std::uint32_t threshold = shared.prefix;
  const std::int32_t ties_wanted = shared.wanted;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto range =
      static_cast<std::int32_t>(numerics::round_up(numerics::ceil_div(keys, kSelectWarps), kWarp));
  const std::int32_t first = warp * range;
  const std::int32_t last = first + range < keys ? first + range : keys;
  const auto bits_of = [&](std::int32_t key) {
    return key < last ? numerics::repair_order(energies[key]) : 0u;
  };
  std::int32_t larger = 0;
  std::int32_t ties = 0;
  for (std::int32_t key = first + lane; key - lane < last; key += kWarp) {
    const std::uint32_t bits = bits_of(key);
    larger += __popc(__ballot_sync(kAllLanes, key < last && bits > threshold));
    ties += __popc(__ballot_sync(kAllLanes, key < last && bits == threshold));
  }
  if (lane == 0) {
    shared.warp_sums[warp] = larger;
    shared.warp_ties[warp] = ties;
  }
  __syncthreads();
  larger = 0;
  ties = 0;
  for (int i = 0; i < warp; ++i) {
    larger += shared.warp_sums[i];
    ties += shared.warp_ties[i];
  }
  std::int32_t* tokens = a.tokens(blockIdx.x);
  const unsigned lower_lanes = (1u << lane) - 1u;
  for (std::int32_t key = first + lane; key - lane < last; key += kWarp) {
    const std::uint32_t bits = bits_of(key);
    const bool is_larger = key < last && bits > threshold;
    const bool is_tie = key < last && bits == threshold;
    const unsigned larger_lanes = __ballot_sync(kAllLanes, is_larger);
    const unsigned tie_lanes = __ballot_sync(kAllLanes, is_tie);
    const std::int32_t larger_before = larger + __popc(larger_lanes & lower_lanes);
    const std::int32_t ties_before = ties + __popc(tie_lanes & lower_lanes);
    if (is_larger || (is_tie && ties_before < ties_wanted)) {
      tokens[larger_before + (ties_before < ties_wanted ? ties_before : ties_wanted)] = key;
    }
    larger += __popc(larger_lanes);
    ties += __popc(tie_lanes);
  }
}

/// Rows of `width` bytes: those below `count` are copies of their token's row, the others repeat
/// the last of them.
__device__ __forceinline__ void copy_rows(const std::byte* source, std::byte* out, int width,
                                          const std::int32_t* tokens, int count) {
  const int units = width / static_cast<int>(sizeof(uint4));
  for (int i = static_cast<int>(threadIdx.x); i < kTileRows * units; i += kTileThreads) {
    const int row = i / units;
    const std::int64_t key = tokens[row < count ? row : count - 1];
    reinterpret_cast<uint4*>(out)[i] =
        reinterpret_cast<const uint4*>(source + key * width)[i % units];
  }
}

struct RepairStorage {
  alignas(16) ValueTile values;
};

/// Appends blocks of repair rows: keys of the chosen tokens with the residuals of their values.
/// Grid (heads * repair blocks), kTileThreads threads.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kTileThreads)
    write_repair_rows(const __grid_constant__ Arguments a) {
  auto& shared = ptx::static_shared<RepairStorage>().values;
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const schedule::Problem& problem = a.problem;
  const std::int64_t bh = blockIdx.x / problem.repair_blocks();
  const std::int64_t repair_block = blockIdx.x % problem.repair_blocks();
  const int count = rows_in_tile(problem.repair_rows, repair_block);
  const std::int32_t* tokens = a.tokens(bh) + repair_block * kTileRows;
  const std::int64_t block = problem.key_blocks() + repair_block;
  const std::int64_t first = block * kTileRows;
  copy_rows(a.key_row(bh, 0), a.key_row(bh, first), numerics::kHeadDim, tokens, count);
  for (int step = 0; step < a.plan(bh).scores.extra_steps; ++step) {
    copy_rows(a.key_columns(step, bh, 0), a.key_columns(step, bh, first), numerics::kColumnsPerStep,
              tokens, count);
  }
  HeadTokens values = a.keys(a.v, bh);
  values.selected = tokens;
  values.count = count;
  write_value_tile<kType, kAligned, ValueContent::residuals>(
      TileTokens(values, 0), 0, a.spare_head_dim(), [] {}, a.plan(bh), nullptr, shared,
      a.block_layout.format.ones_rows, a.value_block(bh, block));
}

}  // namespace openvc::cuda::prepare
