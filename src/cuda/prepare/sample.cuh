// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/row_chunk.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "numerics/moments.hpp"
#include "numerics/token_sample.hpp"

// Second moments of a sample of Q, of K and of V (numerics/moments.hpp): ranges of the channels
// first, then products of their codes. A thread block takes one part of the sample of one tensor.
namespace openvc::cuda::prepare {

/// Tokens of a part that are in shared memory together.
inline constexpr int kSampleTile = 256;
static_assert(kSamplePartTokens % kSampleTile == 0);

/// Codes of a tile of the sample, [channel][token]. The padding spreads channels over the banks.
inline constexpr int kSampleStride = kSampleTile + 8;

struct RangesStorage {
  float max[numerics::kReductionLanes][numerics::kHeadDim];
  float min[numerics::kReductionLanes][numerics::kHeadDim];
};

struct MomentsStorage {
  alignas(16) std::int8_t codes[numerics::kHeadDim * kSampleStride];
  float centres[numerics::kHeadDim];
  float multipliers[numerics::kHeadDim];
};

/// What a block works on.
struct SampleBlock {
  std::int64_t bh;
  int tensor;  // SampledTensor
  bool wanted;
  bool centred;  // moments about the mean
  int part;
  HeadTokens tokens;
  int count;  // of the sample

  __device__ explicit SampleBlock(const Arguments& a) {
    constexpr int kEach = kSampledTensors * kSampleParts;
    const HeadBlock block(kEach);
    bh = block.bh;
    tensor = static_cast<int>(block.index) / kSampleParts;
    part = static_cast<int>(block.index) % kSampleParts;
    wanted =
        tensor == kSampledValue ? a.workspace_layout.with_value_axes : a.workspace_layout.with_axes;
    centred = tensor == kSampledKey || (tensor == kSampledValue && a.numerics.smooth_values);
    tokens =
        tensor == kSampledQuery ? a.queries(bh) : a.keys(tensor == kSampledKey ? a.k : a.v, bh);
    count = numerics::sample_size(tokens.count);
  }

  /// Chunk of token i of the sample; zeros beyond its end.
  template <ElementType kType, bool kAligned>
  [[nodiscard]] __device__ __forceinline__ RawChunk<kType> load(int i, int chunk) const {
    const bool present = i < count;
    const std::int64_t token = present ? numerics::sampled_token(i, tokens.count) : 0;
    return load_chunk<kType, kAligned>(present ? tokens.row(token) : tokens.first, chunk,
                                       present && chunk < tokens.chunks);
  }
};

/// Blocks per head: kSampledTensors * kSampleParts. Also clears the sums of the next kernel.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kTileThreads)
    find_sample_ranges(const __grid_constant__ Arguments a) {
  auto& [max, min] = ptx::static_shared<RangesStorage>();
  ptx::griddepcontrol_launch_dependents();
  const SampleBlock block(a);
  if (!block.wanted) return;
  const TileThread thread;
  Chunk largest;
  Chunk smallest;
#pragma unroll
  for (int c = 0; c < kChunkChannels; ++c) {
    largest[c] = -numerics::infinity();
    smallest[c] = numerics::infinity();
  }
  constexpr int kRowsAtOnce = 8;
  constexpr int kStride = numerics::kReductionLanes * kRowsAtOnce;
  for (int first = thread.lane; first < kSamplePartTokens; first += kStride) {
    RawChunk<kType> raw[kRowsAtOnce];
    const auto index = [&](int i) {
      return block.part * kSamplePartTokens + first + i * numerics::kReductionLanes;
    };
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      raw[i] = block.load<kType, kAligned>(index(i), thread.chunk);
    }
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) {
      if (index(i) >= block.count) continue;
      Chunk x;
      to_floats<kType>(raw[i], x);
#pragma unroll
      for (int c = 0; c < kChunkChannels; ++c) {
        largest[c] = Max{}(x[c], largest[c]);
        smallest[c] = Min{}(x[c], smallest[c]);
      }
    }
  }
#pragma unroll
  for (int c = 0; c < kChunkChannels; ++c) {
    max[thread.lane][thread.chunk * kChunkChannels + c] = largest[c];
    min[thread.lane][thread.chunk * kChunkChannels + c] = smallest[c];
  }
  numerics::Moments& moments = a.moments(block.bh, block.tensor);
  constexpr int kShare = numerics::kHeadDim * numerics::kHeadDim / kSampleParts;
  for (int i = static_cast<int>(threadIdx.x); i < kShare; i += kTileThreads) {
    moments.gram[block.part * kShare + i] = 0;
  }
  __syncthreads();
  if (threadIdx.x >= numerics::kHeadDim) return;
  const auto c = static_cast<int>(threadIdx.x);
  if (block.part == 0) moments.sums[c] = 0;
  float range_max = max[0][c];
  float range_min = min[0][c];
  for (int lane = 1; lane < numerics::kReductionLanes; ++lane) {
    range_max = Max{}(max[lane][c], range_max);
    range_min = Min{}(min[lane][c], range_min);
  }
  float* ranges = a.sample_ranges(block.bh, block.tensor, block.part);
  ranges[c] = range_max;
  ranges[numerics::kHeadDim + c] = range_min;
}

/// Scales of all channels from the ranges of the parts; the first kHeadDim threads.
__device__ __forceinline__ void finish_ranges(const Arguments& a, const SampleBlock& block,
                                              MomentsStorage& shared) {
  const auto c = static_cast<int>(threadIdx.x);
  float max = -numerics::infinity();
  float min = numerics::infinity();
  for (int part = 0; part < kSampleParts; ++part) {
    const float* ranges = a.sample_ranges(block.bh, block.tensor, part);
    max = Max{}(ranges[c], max);
    min = Min{}(ranges[numerics::kHeadDim + c], min);
  }
  if (block.count == 0) max = min = 0.0f;
  const numerics::MomentScale scale = numerics::moment_scale(min, max, block.centred);
  shared.centres[c] = scale.centre;
  shared.multipliers[c] = scale.multiplier();
  if (block.part == 0) a.moments(block.bh, block.tensor).scales[c] = scale;
}

/// Codes of kSampleTile tokens from sample index `first` on; zeros beyond the sample.
template <ElementType kType, bool kAligned>
__device__ __forceinline__ void write_codes(const SampleBlock& block, int first,
                                            MomentsStorage& shared) {
  constexpr int kPacked = 4;  // neighbouring tokens of one word
  constexpr int kRows = numerics::kReductionLanes * kPacked;
  const TileThread thread;
  for (int row = thread.lane * kPacked; row < kSampleTile; row += kRows) {
    RawChunk<kType> raw[kPacked];
#pragma unroll
    for (int i = 0; i < kPacked; ++i) {
      raw[i] = block.load<kType, kAligned>(first + row + i, thread.chunk);
    }
    std::uint32_t words[kChunkChannels] = {};
#pragma unroll
    for (int i = 0; i < kPacked; ++i) {
      if (first + row + i >= block.count) continue;
      Chunk x;
      to_floats<kType>(raw[i], x);
#pragma unroll
      for (int c = 0; c < kChunkChannels; ++c) {
        const int channel = thread.chunk * kChunkChannels + c;
        const std::int32_t code =
            numerics::moment_code(x[c], shared.centres[channel], shared.multipliers[channel]);
        words[c] |= (static_cast<std::uint32_t>(code) & 0xFFu) << (8 * i);
      }
    }
#pragma unroll
    for (int c = 0; c < kChunkChannels; ++c) {
      const int channel = thread.chunk * kChunkChannels + c;
      *reinterpret_cast<std::uint32_t*>(shared.codes + channel * kSampleStride + row) = words[c];
    }
  }
}

/// Sum of a channel's codes of the tile.
__device__ __forceinline__ std::int32_t sum_codes(const MomentsStorage& shared, int channel) {
  const auto* words = reinterpret_cast<const int*>(shared.codes + channel * kSampleStride);
  constexpr int kOnes = 0x0101'0101;
  std::int32_t sum = 0;
  for (int i = 0; i < kSampleTile / 4; ++i) sum = __dp4a(words[i], kOnes, sum);
  return sum;
}

inline constexpr int kGramRows = 16;
inline constexpr int kGramColumns = 8;
inline constexpr int kGramTiles = numerics::kHeadDim / kGramColumns;
static_assert(kTileWarps * kGramRows == numerics::kHeadDim);

/// Whether a warp computes a tile: those on and above the diagonal.
__device__ __forceinline__ bool has_gram_tile(int warp, int tile) {
  return (tile + 1) * kGramColumns > warp * kGramRows;
}

/// Adds the products of the tile's codes: a warp has kGramRows rows of the matrix.
__device__ __forceinline__ void multiply_codes(const MomentsStorage& shared,
                                               std::int32_t (&sums)[kGramTiles][4]) {
  constexpr int kDepth = 32;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int group = static_cast<int>(threadIdx.x) % kWarp / 4;
  const int quad = static_cast<int>(threadIdx.x) % 4;
  const auto word = [&](int channel, int token) {
    return *reinterpret_cast<const std::uint32_t*>(shared.codes + channel * kSampleStride + token);
  };
  for (int first = 0; first < kSampleTile; first += kDepth) {
    const int near = first + 4 * quad;
    const int far = near + kDepth / 2;
    const int row = warp * kGramRows + group;
    const std::uint32_t left[4] = {word(row, near), word(row + 8, near), word(row, far),
                                   word(row + 8, far)};
#pragma unroll
    for (int tile = 0; tile < kGramTiles; ++tile) {
      if (!has_gram_tile(warp, tile)) continue;
      const int column = tile * kGramColumns + group;
      ptx::mma_m16n8k32_s8(sums[tile], left, word(column, near), word(column, far));
    }
  }
}

/// Blocks per head: kSampledTensors * kSampleParts. Only the tiles of the matrix that
/// has_gram_tile() names.
template <ElementType kType, bool kAligned>
__global__ void __launch_bounds__(kTileThreads)
    sum_sample_moments(const __grid_constant__ Arguments a) {
  auto& shared = ptx::static_shared<MomentsStorage>();
  ptx::griddepcontrol_launch_dependents();
  const SampleBlock block(a);
  ptx::griddepcontrol_wait();
  if (!block.wanted) return;
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread < numerics::kHeadDim) finish_ranges(a, block, shared);
  __syncthreads();
  std::int32_t channel_sum = 0;
  std::int32_t sums[kGramTiles][4] = {};
  for (int first = 0; first < kSamplePartTokens; first += kSampleTile) {
    write_codes<kType, kAligned>(block, block.part * kSamplePartTokens + first, shared);
    __syncthreads();
    if (thread < numerics::kHeadDim) channel_sum += sum_codes(shared, thread);
    multiply_codes(shared, sums);
    __syncthreads();
  }
  numerics::Moments& moments = a.moments(block.bh, block.tensor);
  if (thread < numerics::kHeadDim) atomicAdd(&moments.sums[thread], channel_sum);
  const int warp = thread / kWarp;
  const int group = thread % kWarp / 4;
  const int quad = thread % 4;
#pragma unroll
  for (int tile = 0; tile < kGramTiles; ++tile) {
    if (!has_gram_tile(warp, tile)) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = warp * kGramRows + group + (i / 2) * 8;
      const int column = tile * kGramColumns + 2 * quad + i % 2;
      atomicAdd(&moments.gram[row * numerics::kHeadDim + column], sums[tile][i]);
    }
  }
}

}  // namespace openvc::cuda::prepare
