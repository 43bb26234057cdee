// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/row_chunk.cuh"

// The first pass over the inputs: a thread block reduces a tile of one tensor to a row of partial
// results.
namespace openvc::cuda::prepare {

inline constexpr int kTileThreads = numerics::kReductionLanes * kRowThreads;
inline constexpr int kTileWarps = kTileThreads / kWarp;
/// Rows of a tile that one thread sees: those of one canonical lane.
inline constexpr int kRowsPerThread = kTileRows / numerics::kReductionLanes;
static_assert(kTileThreads == 256);
/// Statistics of one part of a head.
inline constexpr int kPartStatistics = 3;

/// Place of a thread in a tile: chunk `chunk` of the rows lane, lane + 16, lane + 32, ...
struct TileThread {
  int chunk = static_cast<int>(threadIdx.x) % kRowThreads;
  int lane = static_cast<int>(threadIdx.x) / kRowThreads;

  [[nodiscard]] __device__ int row(int i) const { return lane + i * numerics::kReductionLanes; }
};

/// A thread's chunks of a tile; zero beyond `count` rows. All loads are in flight together.
template <ElementType kType, bool kAligned>
__device__ __forceinline__ void load_tile(const std::byte* rows, std::int64_t row_stride, int count,
                                          const TileThread& thread,
                                          RawChunk<kType> (&raw)[kRowsPerThread]) {
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    const int row = thread.row(i);
    raw[i] = load_chunk<kType, kAligned>(rows + row * row_stride, thread.chunk, row < count);
  }
  __syncthreads();  // keeps them above the first use
}

struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};
struct Min {
  __device__ float operator()(float a, float b) const { return a < b ? a : b; }
};

struct StatisticsStorage {
  // Two canonical lanes are joined before they get here, one row per warp.
  float columns[kPartStatistics][kTileWarps][numerics::kHeadDim];
  std::uint32_t magnitude[kTileWarps];
  float row_squares[kTileWarps];
};

/// First step of the tree over the lanes of a tile, inside a warp.
template <class Combine>
__device__ __forceinline__ void join_lanes(const Chunk& lanes, const Combine& combine,
                                           float (&rows)[kTileWarps][numerics::kHeadDim],
                                           const TileThread& thread) {
  Chunk joined;
#pragma unroll
  for (int c = 0; c < kChunkChannels; ++c) {
    joined[c] = combine(lanes[c], __shfl_xor_sync(kAllLanes, lanes[c], kRowThreads));
  }
  if (thread.lane % 2 != 0) return;
  auto* quads = reinterpret_cast<float4*>(rows[thread.lane / 2] + thread.chunk * kChunkChannels);
  quads[0] = make_float4(joined[0], joined[1], joined[2], joined[3]);
  quads[1] = make_float4(joined[4], joined[5], joined[6], joined[7]);
}

/// The other steps; one channel.
template <class Combine>
__device__ __forceinline__ float join_warps(const float (&rows)[kTileWarps][numerics::kHeadDim],
                                            int channel, const Combine& combine) {
  float lanes[kTileWarps];
#pragma unroll
  for (int i = 0; i < kTileWarps; ++i) lanes[i] = rows[i][channel];
#pragma unroll
  for (int stride = 1; stride < kTileWarps; stride *= 2) {
#pragma unroll
    for (int i = 0; i < kTileWarps; i += 2 * stride)
      lanes[i] = combine(lanes[i], lanes[i + stride]);
  }
  return lanes[0];
}

/// max of magnitude_bits() over the warp's chunks so far and `x`.
__device__ __forceinline__ void extend_magnitude(std::uint32_t& magnitude, const Chunk& x) {
#pragma unroll
  for (int c = 0; c < kChunkChannels; ++c) {
    const std::uint32_t bits = __float_as_uint(x[c]) & ~numerics::kFloatSignMask;
    magnitude = bits > magnitude ? bits : magnitude;
  }
}

/// Statistics of a tile of Q or K: sums (K only) and sums of squares per channel, extents.
template <ElementType kType, bool kAligned, bool kWithSums>
__device__ __forceinline__ void reduce_score_tile(const std::byte* rows, std::int64_t row_stride,
                                                  int count, StatisticsStorage& shared) {
  const TileThread thread;
  RawChunk<kType> raw[kRowsPerThread];
  load_tile<kType, kAligned>(rows, row_stride, count, thread, raw);
  Chunk sums = {};
  Chunk squares = {};
  std::uint32_t magnitude = 0;
  float row_squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    Chunk x;
    to_floats<kType>(raw[i], x);
#pragma unroll
    for (int c = 0; c < kChunkChannels; ++c) {
      if constexpr (kWithSums) sums[c] = sums[c] + x[c];
      squares[c] = __fmaf_rn(x[c], x[c], squares[c]);
    }
    extend_magnitude(magnitude, x);
    row_squares = Max{}(row_dot(x, x), row_squares);
  }
  if constexpr (kWithSums) join_lanes(sums, Add{}, shared.columns[0], thread);
  join_lanes(squares, Add{}, shared.columns[1], thread);
  magnitude = __reduce_max_sync(kAllLanes, magnitude);
  row_squares = Max{}(row_squares, __shfl_xor_sync(kAllLanes, row_squares, kRowThreads));
  if (static_cast<int>(threadIdx.x) % kWarp == 0) {
    shared.magnitude[static_cast<int>(threadIdx.x) / kWarp] = magnitude;
    shared.row_squares[static_cast<int>(threadIdx.x) / kWarp] = row_squares;
  }
}

/// Statistics of a tile of V: sum, maximum and minimum per channel, largest magnitude.
template <ElementType kType, bool kAligned>
__device__ __forceinline__ void reduce_value_tile(const std::byte* rows, std::int64_t row_stride,
                                                  int count, StatisticsStorage& shared) {
  const TileThread thread;
  RawChunk<kType> raw[kRowsPerThread];
  load_tile<kType, kAligned>(rows, row_stride, count, thread, raw);
  Chunk sums = {};
  Chunk max;
  Chunk min;
#pragma unroll
  for (int c = 0; c < kChunkChannels; ++c) {
    max[c] = -numerics::infinity();
    min[c] = numerics::infinity();
  }
  std::uint32_t magnitude = 0;
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    Chunk x;
    to_floats<kType>(raw[i], x);
    const bool present = thread.row(i) < count;
#pragma unroll
    for (int c = 0; c < kChunkChannels; ++c) {
      sums[c] = sums[c] + x[c];
      if (present) {
        max[c] = Max{}(x[c], max[c]);
        min[c] = Min{}(x[c], min[c]);
      }
    }
    extend_magnitude(magnitude, x);
  }
  join_lanes(sums, Add{}, shared.columns[0], thread);
  join_lanes(max, Max{}, shared.columns[1], thread);
  join_lanes(min, Min{}, shared.columns[2], thread);
  magnitude = __reduce_max_sync(kAllLanes, magnitude);
  if (static_cast<int>(threadIdx.x) % kWarp == 0)
    shared.magnitude[static_cast<int>(threadIdx.x) / kWarp] = magnitude;
}

__device__ __forceinline__ std::uint32_t largest_magnitude(const StatisticsStorage& shared) {
  std::uint32_t largest = 0;
  for (int warp = 0; warp < kTileWarps; ++warp) {
    largest = shared.magnitude[warp] > largest ? shared.magnitude[warp] : largest;
  }
  return largest;
}

__device__ __forceinline__ float largest_row_squares(const StatisticsStorage& shared) {
  float largest = 0.0f;
  for (int warp = 0; warp < kTileWarps; ++warp) largest = Max{}(shared.row_squares[warp], largest);
  return largest;
}

/// The first pass over a tile of Q or K.
template <ElementType kType, bool kAligned, bool kQuery>
__device__ __forceinline__ void collect_score_statistics(const Arguments& a, std::int64_t bh,
                                                         std::int64_t tile,
                                                         StatisticsStorage& shared) {
  const Source& source = kQuery ? a.q : a.k;
  reduce_score_tile<kType, kAligned, !kQuery>(
      source.head(bh, a.problem.heads) + tile * kTileRows * source.row_stride, source.row_stride,
      rows_in_tile(kQuery ? a.problem.queries : a.problem.keys, tile), shared);
  __syncthreads();
  const int channel = static_cast<int>(threadIdx.x) % numerics::kHeadDim;
  if (threadIdx.x < numerics::kHeadDim) {
    a.columns(kQuery ? kQuerySquares : kKeySquares, bh, tile)[channel] =
        join_warps(shared.columns[1], channel, Add{});
    if (channel == 0) {
      a.extents(kQuery ? kQueryMagnitude : kKeyMagnitude, bh)[tile] = largest_magnitude(shared);
    }
  } else {
    if constexpr (!kQuery) {
      a.columns(kKeySums, bh, tile)[channel] = join_warps(shared.columns[0], channel, Add{});
    }
    if (channel == 0) {
      a.extents(kQuery ? kQueryRowSquares : kKeyRowSquares, bh)[tile] =
          __float_as_uint(largest_row_squares(shared));
    }
  }
}

/// The first pass over a tile of V.
template <ElementType kType, bool kAligned>
__device__ __forceinline__ void collect_value_statistics(const Arguments& a, std::int64_t bh,
                                                         std::int64_t tile,
                                                         StatisticsStorage& shared) {
  reduce_value_tile<kType, kAligned>(
      a.v.head(bh, a.problem.heads) + tile * kTileRows * a.v.row_stride, a.v.row_stride,
      rows_in_tile(a.problem.keys, tile), shared);
  __syncthreads();
  const int channel = static_cast<int>(threadIdx.x) % numerics::kHeadDim;
  if (threadIdx.x < numerics::kHeadDim) {
    a.columns(kValueSums, bh, tile)[channel] = join_warps(shared.columns[0], channel, Add{});
    if (channel == 0) a.extents(kValueMagnitude, bh)[tile] = largest_magnitude(shared);
  } else {
    a.columns(kValueMax, bh, tile)[channel] = join_warps(shared.columns[1], channel, Max{});
    a.columns(kValueMin, bh, tile)[channel] = join_warps(shared.columns[2], channel, Min{});
  }
}

}  // namespace openvc::cuda::prepare
