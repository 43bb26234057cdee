// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/ptx/grid_dependency.cuh"

// The first pass over the inputs: every thread block reduces one tile of one tensor.
namespace openvc::cuda::prepare {

inline constexpr int kTileThreads = numerics::kReductionLanes * kRowThreads;
inline constexpr int kTileWarps = kTileThreads / kWarp;
/// Rows of a tile that one thread sees: those of one canonical lane.
inline constexpr int kRowsPerThread = kTileRows / numerics::kReductionLanes;
static_assert(kTileThreads == 256 && kTileRows == numerics::kReductionGroup);

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

/// Thread blocks per multiprocessor that the compiler may count on. Without a number it saves
/// registers for more of them, and issues most loads of a tile only when others have arrived.
template <ElementType kType>
inline constexpr int kStatisticsBlocks = kType == ElementType::float32 ? 2 : 3;

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
  float columns[3][kTileWarps][numerics::kHeadDim];
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
  if (threadIdx.x % kWarp == 0) {
    shared.magnitude[threadIdx.x / kWarp] = magnitude;
    shared.row_squares[threadIdx.x / kWarp] = row_squares;
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
  if (threadIdx.x % kWarp == 0) shared.magnitude[threadIdx.x / kWarp] = magnitude;
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

/// Grid (query tiles + 2 key tiles, heads of the round), kTileThreads threads.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kTileThreads, kStatisticsBlocks<kType>)
    collect_statistics(const __grid_constant__ Arguments a) {
  __shared__ StatisticsStorage shared;
  ptx::griddepcontrol_launch_dependents();
  const std::int64_t head = blockIdx.y;
  const std::int64_t bh = a.first_head + head;
  const std::int64_t heads = a.problem.heads;
  const int channel = static_cast<int>(threadIdx.x) % numerics::kHeadDim;
  const int part = static_cast<int>(threadIdx.x) / numerics::kHeadDim;
  std::int64_t tile = blockIdx.x;
  if (tile < a.workspace_layout.query_tiles) {
    const int count = rows_in_tile(a.problem.queries, tile);
    reduce_score_tile<kType, kAligned, false>(
        a.q.head(bh, heads) + tile * kTileRows * a.q.row_stride, a.q.row_stride, count, shared);
    __syncthreads();
    if (part == 0) {
      a.columns(kQuerySquares, head, tile)[channel] = join_warps(shared.columns[1], channel, Add{});
    } else if (channel == 0) {
      a.extents(kQueryMagnitude, head)[tile] = largest_magnitude(shared);
      a.extents(kQueryRowSquares, head)[tile] = __float_as_uint(largest_row_squares(shared));
    }
    return;
  }
  tile -= a.workspace_layout.query_tiles;
  if (tile < a.workspace_layout.key_tiles) {
    const int count = rows_in_tile(a.problem.keys, tile);
    reduce_score_tile<kType, kAligned, true>(
        a.k.head(bh, heads) + tile * kTileRows * a.k.row_stride, a.k.row_stride, count, shared);
    __syncthreads();
    a.columns(part == 0 ? kKeySums : kKeySquares, head, tile)[channel] =
        join_warps(shared.columns[part], channel, Add{});
    if (threadIdx.x == 0) {
      a.extents(kKeyMagnitude, head)[tile] = largest_magnitude(shared);
      a.extents(kKeyRowSquares, head)[tile] = __float_as_uint(largest_row_squares(shared));
    }
    return;
  }
  tile -= a.workspace_layout.key_tiles;
  const int count = rows_in_tile(a.problem.keys, tile);
  reduce_value_tile<kType, kAligned>(a.v.head(bh, heads) + tile * kTileRows * a.v.row_stride,
                                     a.v.row_stride, count, shared);
  __syncthreads();
  if (part == 0) {
    a.columns(kValueSums, head, tile)[channel] = join_warps(shared.columns[0], channel, Add{});
    if (channel == 0) a.extents(kValueMagnitude, head)[tile] = largest_magnitude(shared);
  } else {
    a.columns(kValueMax, head, tile)[channel] = join_warps(shared.columns[1], channel, Max{});
    a.columns(kValueMin, head, tile)[channel] = join_warps(shared.columns[2], channel, Min{});
  }
}

/// One channel of `count` <= kReductionGroup rows of partial results.
template <class Combine>
__device__ __forceinline__ float reduce_rows(const float* column, int count, float identity,
                                             const Combine& combine) {
  constexpr int kLanes = numerics::kReductionLanes;
  float lanes[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) lanes[i] = identity;
  for (int first = 0; first < count; first += kLanes) {
    float x[kLanes];
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      x[i] = first + i < count ? column[(first + i) * numerics::kHeadDim] : identity;
    }
    // Adding the identity of rows that do not exist changes no bit: no sum is -0.
#pragma unroll
    for (int i = 0; i < kLanes; ++i) lanes[i] = combine(lanes[i], x[i]);
  }
#pragma unroll
  for (int stride = 1; stride < kLanes; stride *= 2) {
#pragma unroll
    for (int i = 0; i < kLanes; i += 2 * stride) lanes[i] = combine(lanes[i], lanes[i + stride]);
  }
  return lanes[0];
}

/// One more level of the tree over tiles, for long sequences: from rows(statistic, head) to the
/// other table. Grid (groups of rows, kColumnStatistics, heads of the round), kHeadDim threads.
static __global__ void __launch_bounds__(numerics::kHeadDim)
    reduce_tiles(const __grid_constant__ Arguments a) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const std::int64_t group = blockIdx.x;
  const int statistic = static_cast<int>(blockIdx.y);
  const std::int64_t head = blockIdx.z;
  const std::int64_t first = group * numerics::kReductionGroup;
  const std::int64_t left = a.rows_left(a.workspace_layout.tiles_of(statistic)) - first;
  if (left <= 0) return;
  const int count =
      left < numerics::kReductionGroup ? static_cast<int>(left) : numerics::kReductionGroup;
  const float* column = a.rows(statistic, head) + first * numerics::kHeadDim + threadIdx.x;
  float result;
  if (statistic == kValueMax) {
    result = reduce_rows(column, count, -numerics::infinity(), Max{});
  } else if (statistic == kValueMin) {
    result = reduce_rows(column, count, numerics::infinity(), Min{});
  } else {
    result = reduce_rows(column, count, 0.0f, Add{});
  }
  float* out =
      a.levels % 2 == 0 ? a.groups(statistic, head, group) : a.columns(statistic, head, group);
  out[threadIdx.x] = result;
}

}  // namespace openvc::cuda::prepare
