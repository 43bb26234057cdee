// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/ptx/cvt.cuh"
#include "cuda/ptx/load.cuh"
#include "numerics/bits.hpp"
#include "numerics/canonical_sum.hpp"
#include "numerics/contract.hpp"
#include "openvc/tensor_view.hpp"

// How threads share a row: sixteen of them hold eight channels each. Both numbers are those of the
// canonical sums, so that partial sums of threads are partial sums of the contract.
namespace openvc::cuda::prepare {

inline constexpr int kChunkChannels = numerics::kRowChunk;
inline constexpr int kRowThreads = numerics::kHeadDim / kChunkChannels;
static_assert(kRowThreads == 16 && kChunkChannels == 8);

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFF'FFFFu;

using Chunk = float[kChunkChannels];

/// Eight channels as they are in memory.
template <ElementType kType>
struct RawChunk {
  static constexpr int kWords = kChunkChannels * static_cast<int>(element_size(kType)) / 4;
  std::uint32_t words[kWords] = {};
};

/// Loads chunk `chunk` of a row that exists if `present`, else zeros. `kAligned`: all rows start at
/// multiples of 16 bytes.
template <ElementType kType, bool kAligned>
__device__ __forceinline__ RawChunk<kType> load_chunk(const std::byte* row, int chunk,
                                                      bool present = true) {
  using Raw = RawChunk<kType>;
  Raw raw;
  const std::byte* data = row + chunk * static_cast<int>(sizeof(Raw));
  if constexpr (kAligned) {
#pragma unroll
    for (int i = 0; i < Raw::kWords / 4; ++i) {
      const uint4 quad = ptx::ld_global_v4(data + i * sizeof(uint4), present);
      raw.words[4 * i] = quad.x;
      raw.words[4 * i + 1] = quad.y;
      raw.words[4 * i + 2] = quad.z;
      raw.words[4 * i + 3] = quad.w;
    }
    return raw;
  }
  if (!present) return raw;
  if constexpr (kType == ElementType::float32) {
#pragma unroll
    for (int i = 0; i < Raw::kWords; ++i) {
      raw.words[i] = __ldg(reinterpret_cast<const std::uint32_t*>(data) + i);
    }
  } else {
    const auto* halves = reinterpret_cast<const std::uint16_t*>(data);
#pragma unroll
    for (int i = 0; i < Raw::kWords; ++i) {
      const std::uint32_t low = __ldg(halves + 2 * i);
      const std::uint32_t high = __ldg(halves + 2 * i + 1);
      raw.words[i] = low | high << 16;
    }
  }
  return raw;
}

/// Exact.
template <ElementType kType>
__device__ __forceinline__ void to_floats(const RawChunk<kType>& raw, Chunk& x) {
#pragma unroll
  for (int i = 0; i < RawChunk<kType>::kWords; ++i) {
    const std::uint32_t word = raw.words[i];
    if constexpr (kType == ElementType::float32) {
      x[i] = __uint_as_float(word);
    } else if constexpr (kType == ElementType::bfloat16) {
      x[2 * i] = __uint_as_float(word << 16);
      x[2 * i + 1] = __uint_as_float(word & 0xFFFF'0000u);
    } else {
      x[2 * i] = ptx::cvt_f32_f16_low(word);
      x[2 * i + 1] = ptx::cvt_f32_f16_high(word);
    }
  }
}

/// One channel of a row, which the caller has just loaded: it comes from L1.
template <ElementType kType>
__device__ __forceinline__ float load_channel(const std::byte* row, int channel) {
  if constexpr (kType == ElementType::float32) {
    return __ldg(reinterpret_cast<const float*>(row) + channel);
  } else {
    const std::uint16_t bits = __ldg(reinterpret_cast<const std::uint16_t*>(row) + channel);
    if constexpr (kType == ElementType::bfloat16) {
      return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
    } else {
      return ptx::cvt_f32_f16_low(bits);
    }
  }
}

/// Channels of a chunk of a table of kHeadDim floats.
__device__ __forceinline__ void load_table(const float* table, int chunk, Chunk& x) {
  const auto* quads = reinterpret_cast<const float4*>(table + chunk * kChunkChannels);
#pragma unroll
  for (int i = 0; i < kChunkChannels / 4; ++i) {
    const float4 quad = quads[i];
    x[4 * i] = quad.x;
    x[4 * i + 1] = quad.y;
    x[4 * i + 2] = quad.z;
    x[4 * i + 3] = quad.w;
  }
}

/// Adds `count` neighbouring lanes as a balanced binary tree (numerics::sum_balanced): addition
/// commutes, so all of them compute the same bits. All lanes of the warp take part.
template <int kCount>
__device__ __forceinline__ float sum_lanes(float x) {
#pragma unroll
  for (int stride = 1; stride < kCount; stride *= 2) x += __shfl_xor_sync(kAllLanes, x, stride);
  return x;
}

/// A thread's part of numerics::row_dot.
__device__ __forceinline__ float chunk_dot(const Chunk& left, const Chunk& right) {
  float sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunkChannels; ++c) sum = __fmaf_rn(left[c], right[c], sum);
  return sum;
}

/// numerics::row_dot of rows that sixteen neighbouring threads share.
__device__ __forceinline__ float row_dot(const Chunk& left, const Chunk& right) {
  return sum_lanes<kRowThreads>(chunk_dot(left, right));
}

/// numerics::hadamard of a row that sixteen neighbouring threads share, times `scale`.
__device__ __forceinline__ void rotate(Chunk& x, int chunk, float scale) {
#pragma unroll
  for (int stride = 1; stride < kChunkChannels; stride *= 2) {
#pragma unroll
    for (int i = 0; i < kChunkChannels; ++i) {
      if ((i & stride) != 0) continue;
      const float low = x[i];
      const float high = x[i + stride];
      x[i] = low + high;
      x[i + stride] = low - high;
    }
  }
#pragma unroll
  for (int stride = 1; stride < kRowThreads; stride *= 2) {
    const bool is_high = (chunk & stride) != 0;
#pragma unroll
    for (int i = 0; i < kChunkChannels; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, x[i], stride);
      x[i] = is_high ? other - x[i] : x[i] + other;
    }
  }
#pragma unroll
  for (int i = 0; i < kChunkChannels; ++i) x[i] *= scale;
}

/// Eight codes, the first channel in the lowest byte.
__device__ __forceinline__ uint2 encode_chunk(const Chunk& x) {
  const auto word = [&x](int i) {
    const std::uint32_t low = ptx::cvt_rn_satfinite_e4m3x2_f32(x[i], x[i + 1]);
    const std::uint32_t high = ptx::cvt_rn_satfinite_e4m3x2_f32(x[i + 2], x[i + 3]);
    return low | high << 16;
  };
  return {word(0), word(4)};
}

/// Values of two codes.
__device__ __forceinline__ float2 decode_pair(std::uint16_t codes) {
  const std::uint32_t halves = ptx::cvt_rn_f16x2_e4m3x2(codes);
  return {ptx::cvt_f32_f16_low(halves), ptx::cvt_f32_f16_high(halves)};
}

}  // namespace openvc::cuda::prepare
