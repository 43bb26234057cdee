// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/ptx/cvt.cuh"
#include "cuda/ptx/f16x2.cuh"
#include "cuda/ptx/u16x2.cuh"

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

/// Tokens of a tile.
struct TileTokens {
  HeadTokens tokens;
  std::int64_t first;  // token of the tile
  int count;           // 0 for a tile of padding

  __device__ __forceinline__ TileTokens(const HeadTokens& all, std::int64_t tile)
      : tokens(all), first(tile * kTileRows), count(rows_in_tile(all.count, tile)) {}

  [[nodiscard]] __device__ __forceinline__ const std::byte* row(int i) const {
    return tokens.row(first + i);
  }
  /// HeadTokens::visit_rows() of the tile; none of them may be read in a tile of padding.
  template <class Visit>
  __device__ __forceinline__ void visit_rows(const Visit& visit) const {
    tokens.visit_rows(first, visit);
  }
};

/// A thread's chunks of a tile; zero where there are none. All loads are in flight together.
template <ElementType kType, bool kAligned>
__device__ __forceinline__ void load_tile(const TileTokens& tile, const TileThread& thread,
                                          RawChunk<kType> (&raw)[kRowsPerThread]) {
  const int count = thread.chunk < tile.tokens.chunks ? tile.count : 0;
  tile.visit_rows([&](const auto& rows) {
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      const int row = thread.row(i);
      const bool exists = row < count;
      raw[i] = load_chunk<kType, kAligned>(rows.row(row, exists), thread.chunk, exists);
    }
  });
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
  std::uint32_t row_squares[kTileWarps];  // bits of floats
};

/// First step of the tree over the lanes of a tile: of the two lanes in a warp, the even one joins
/// the lower half of the channels and the odd one the upper half.
template <class Combine>
__device__ __forceinline__ void join_lanes(const Chunk& lanes, const Combine& combine,
                                           float (&rows)[kTileWarps][numerics::kHeadDim],
                                           const TileThread& thread) {
  constexpr int kHalf = kChunkChannels / 2;
  const bool is_odd = thread.lane % 2 != 0;
  float joined[kHalf];
#pragma unroll
  for (int c = 0; c < kHalf; ++c) {
    const float sent = is_odd ? lanes[c] : lanes[c + kHalf];
    const float received = __shfl_xor_sync(kAllLanes, sent, kRowThreads);
    joined[c] = is_odd ? combine(received, lanes[c + kHalf]) : combine(lanes[c], received);
  }
  float* row = rows[thread.lane / 2] + thread.chunk * kChunkChannels + (is_odd ? kHalf : 0);
  *reinterpret_cast<float4*>(row) = make_float4(joined[0], joined[1], joined[2], joined[3]);
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

/// Largest magnitude of a thread's elements. Magnitudes order like their bits, which are compared
/// as they are in memory: two at a time if they have 16 bits.
template <ElementType kType>
struct Magnitude {
  std::uint32_t largest = 0;

  __device__ __forceinline__ void extend(const RawChunk<kType>& raw) {
#pragma unroll
    for (int i = 0; i < RawChunk<kType>::kWords; ++i) {
      if constexpr (kType == ElementType::float32) {
        const std::uint32_t bits = raw.words[i] & ~numerics::kFloatSignMask;
        largest = bits > largest ? bits : largest;
      } else {
        constexpr std::uint32_t kSignMasks = 0x8000'8000u;
        largest = ptx::max_u16x2(largest, raw.words[i] & ~kSignMasks);
      }
    }
  }

  /// As bits of a float.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t float_bits() const {
    if constexpr (kType == ElementType::float32) return largest;
    const std::uint32_t high = largest >> 16;
    const std::uint32_t low = largest & 0xFFFFu;
    const std::uint32_t bits = high > low ? high : low;
    if constexpr (kType == ElementType::bfloat16) return bits << 16;
    return __float_as_uint(ptx::cvt_f32_f16_low(bits));
  }
};

/// Leaves the largest magnitude of every warp in shared memory.
template <ElementType kType>
__device__ __forceinline__ void join_magnitudes(const Magnitude<kType>& magnitude,
                                                StatisticsStorage& shared) {
  const std::uint32_t largest = __reduce_max_sync(kAllLanes, magnitude.float_bits());
  if (threadIdx.x % kWarp == 0) shared.magnitude[threadIdx.x / kWarp] = largest;
}

/// Adds the parts that sixteen neighbouring threads have of kRowsPerThread sums, as the balanced
/// tree of numerics::row_dot. At every step a thread gives away half of its sums and completes the
/// other: each ends with one, and two threads with the same.
__device__ __forceinline__ float sum_rows(float (&parts)[kRowsPerThread], int chunk) {
#pragma unroll
  for (int count = kRowsPerThread / 2, stride = 1; count > 0; count /= 2, stride *= 2) {
    const bool is_upper = (chunk & stride) != 0;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const float sent = is_upper ? parts[i] : parts[i + count];
      const float kept = is_upper ? parts[i + count] : parts[i];
      parts[i] = kept + __shfl_xor_sync(kAllLanes, sent, stride);
    }
  }
  static_assert(kRowsPerThread == kRowThreads / 2);
  return parts[0] + __shfl_xor_sync(kAllLanes, parts[0], kRowThreads / 2);
}

/// Leaves the largest sum of squares of a row of every warp in shared memory.
__device__ __forceinline__ void join_row_squares(float (&row_squares)[kRowsPerThread],
                                                 const TileThread& thread,
                                                 StatisticsStorage& shared) {
  // A sum of squares that is not NaN is not negative, so its bits order like the number.
  const float sum = Max{}(sum_rows(row_squares, thread.chunk), 0.0f);
  const std::uint32_t largest = __reduce_max_sync(kAllLanes, __float_as_uint(sum));
  if (threadIdx.x % kWarp == 0) shared.row_squares[threadIdx.x / kWarp] = largest;
}

/// Statistics of a tile of Q or K: sums (K only) and sums of squares per channel, extents.
template <ElementType kType, bool kAligned, bool kWithSums>
__device__ __forceinline__ void reduce_score_tile(const TileTokens& tile,
                                                  StatisticsStorage& shared) {
  const TileThread thread;
  RawChunk<kType> raw[kRowsPerThread];
  load_tile<kType, kAligned>(tile, thread, raw);
  Chunk sums = {};
  Chunk squares = {};
  Magnitude<kType> magnitude;
  float row_squares[kRowsPerThread];
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    Chunk x;
    to_floats<kType>(raw[i], x);
#pragma unroll
    for (int c = 0; c < kChunkChannels; ++c) {
      if constexpr (kWithSums) sums[c] = sums[c] + x[c];
      squares[c] = __fmaf_rn(x[c], x[c], squares[c]);
    }
    magnitude.extend(raw[i]);
    row_squares[i] = chunk_dot(x, x);
  }
  if constexpr (kWithSums) join_lanes(sums, Add{}, shared.columns[0], thread);
  join_lanes(squares, Add{}, shared.columns[1], thread);
  join_magnitudes(magnitude, shared);
  join_row_squares(row_squares, thread, shared);
}

/// Maximum and minimum of each channel of a thread, NaN ignored. Elements of 16 bits are compared
/// as they are in memory, two at a time; the sign of a zero among them decides nothing (see
/// numerics::channel_spread).
template <ElementType kType>
struct Range {
  static constexpr bool kPacked = kType != ElementType::float32;
  static constexpr bool kHalf = kType == ElementType::float16;
  static constexpr std::uint32_t kInfinities =
      kHalf ? 0x7C00'7C00u : (kPacked ? 0x7F80'7F80u : numerics::kFloatInfinityBits);
  static constexpr std::uint32_t kSigns = kPacked ? 0x8000'8000u : numerics::kFloatSignMask;

  RawChunk<kType> max;
  RawChunk<kType> min;

  __device__ __forceinline__ Range() {
#pragma unroll
    for (int i = 0; i < RawChunk<kType>::kWords; ++i) {
      max.words[i] = kInfinities | kSigns;
      min.words[i] = kInfinities;
    }
  }

  __device__ __forceinline__ void extend(const RawChunk<kType>& raw) {
#pragma unroll
    for (int i = 0; i < RawChunk<kType>::kWords; ++i) {
      const std::uint32_t x = raw.words[i];
      if constexpr (kHalf) {
        max.words[i] = ptx::max_f16x2(max.words[i], x);
        min.words[i] = ptx::min_f16x2(min.words[i], x);
      } else if constexpr (kPacked) {
        max.words[i] = ptx::max_bf16x2(max.words[i], x);
        min.words[i] = ptx::min_bf16x2(min.words[i], x);
      } else {
        const float value = __uint_as_float(x);
        max.words[i] = __float_as_uint(Max{}(value, __uint_as_float(max.words[i])));
        min.words[i] = __float_as_uint(Min{}(value, __uint_as_float(min.words[i])));
      }
    }
  }
};

/// Statistics of a tile of V: sum, maximum and minimum per channel, largest magnitude.
template <ElementType kType, bool kAligned>
__device__ __forceinline__ void reduce_value_tile(const TileTokens& tile,
                                                  StatisticsStorage& shared) {
  const TileThread thread;
  RawChunk<kType> raw[kRowsPerThread];
  load_tile<kType, kAligned>(tile, thread, raw);
  Chunk sums = {};
  Range<kType> range;
  Magnitude<kType> magnitude;
  float row_squares[kRowsPerThread];
#pragma unroll
  for (int i = 0; i < kRowsPerThread; ++i) {
    Chunk x;
    to_floats<kType>(raw[i], x);
#pragma unroll
    for (int c = 0; c < kChunkChannels; ++c) sums[c] = sums[c] + x[c];
    if (thread.row(i) < tile.count) range.extend(raw[i]);
    magnitude.extend(raw[i]);
    row_squares[i] = chunk_dot(x, x);
  }
  Chunk max;
  Chunk min;
  to_floats<kType>(range.max, max);
  to_floats<kType>(range.min, min);
  join_lanes(sums, Add{}, shared.columns[0], thread);
  join_lanes(max, Max{}, shared.columns[1], thread);
  join_lanes(min, Min{}, shared.columns[2], thread);
  join_magnitudes(magnitude, shared);
  join_row_squares(row_squares, thread, shared);
}

__device__ __forceinline__ std::uint32_t largest_of_warps(
    const std::uint32_t (&values)[kTileWarps]) {
  std::uint32_t largest = 0;
  for (const std::uint32_t value : values) largest = value > largest ? value : largest;
  return largest;
}

/// The first pass over a tile of Q or K.
template <ElementType kType, bool kAligned, bool kQuery>
__device__ __forceinline__ void collect_score_statistics(const Arguments& a, std::int64_t bh,
                                                         std::int64_t tile,
                                                         StatisticsStorage& shared) {
  reduce_score_tile<kType, kAligned, !kQuery>({kQuery ? a.queries(bh) : a.keys(a.k, bh), tile},
                                              shared);
  __syncthreads();
  const int channel = static_cast<int>(threadIdx.x) % numerics::kHeadDim;
  if (threadIdx.x < numerics::kHeadDim) {
    a.columns(kQuery ? kQuerySquares : kKeySquares, bh, tile)[channel] =
        join_warps(shared.columns[1], channel, Add{});
    if (channel == 0) {
      a.extents(kQuery ? kQueryMagnitude : kKeyMagnitude, bh)[tile] =
          largest_of_warps(shared.magnitude);
    }
  } else {
    if constexpr (!kQuery) {
      a.columns(kKeySums, bh, tile)[channel] = join_warps(shared.columns[0], channel, Add{});
    }
    if (channel == 0) {
      a.extents(kQuery ? kQueryRowSquares : kKeyRowSquares, bh)[tile] =
          largest_of_warps(shared.row_squares);
    }
  }
}

/// The first pass over a tile of V.
template <ElementType kType, bool kAligned>
__device__ __forceinline__ void collect_value_statistics(const Arguments& a, std::int64_t bh,
                                                         std::int64_t tile,
                                                         StatisticsStorage& shared) {
  reduce_value_tile<kType, kAligned>({a.keys(a.v, bh), tile}, shared);
  __syncthreads();
  const int channel = static_cast<int>(threadIdx.x) % numerics::kHeadDim;
  if (threadIdx.x < numerics::kHeadDim) {
    a.columns(kValueSums, bh, tile)[channel] = join_warps(shared.columns[0], channel, Add{});
    if (channel == 0) a.extents(kValueMagnitude, bh)[tile] = largest_of_warps(shared.magnitude);
  } else {
    a.columns(kValueMax, bh, tile)[channel] = join_warps(shared.columns[1], channel, Max{});
    a.columns(kValueMin, bh, tile)[channel] = join_warps(shared.columns[2], channel, Min{});
    if (channel == 0) a.extents(kValueRowSquares, bh)[tile] = largest_of_warps(shared.row_squares);
  }
}

}  // namespace openvc::cuda::prepare
