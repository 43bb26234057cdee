// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/prepare/row_chunk.cuh"
#include "cuda/prepare/statistics.cuh"
#include "cuda/prepare/workspace.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/key_permutation.hpp"
#include "numerics/v_quantize.hpp"
#include "schedule/prepared_layout.hpp"

// Tiles of packed V. A thread takes the four keys of four neighbouring slots and eight channels, so
// that four codes of one channel are one 32-bit word without a shuffle.
namespace openvc::cuda::prepare {

/// Slots of a word.
inline constexpr int kWordSlots = 4;
/// Words that one group of the key permutation fills in a channel: a 16-byte unit.
inline constexpr int kGroupWords = numerics::kKeyGroup / kWordSlots;
/// Units of a channel of a block.
inline constexpr int kChannelUnits = numerics::kKeyBlock / numerics::kKeyGroup;
static_assert(kChannelUnits == kTileWarps, "one group of keys per warp");
/// Chunks that a warp handles at a time, next to kGroupWords words.
inline constexpr int kChunksAtOnce = kWarp / kGroupWords;
static_assert(kChunksAtOnce == kChannelUnits && kRowThreads % kChunksAtOnce == 0);

/// Codes of a block, [channel][unit ^ (chunk of the channel % kChannelUnits)][byte]: neighbouring
/// chunks write the same unit to different banks.
using ValueTile = std::uint32_t[numerics::kHeadDim][kChannelUnits][kGroupWords];

/// What a block of packed V holds: codes, or residuals of codes.
enum class ValueContent { codes, residuals };

/// Where a thread works: word `word` of the unit `group`, chunks chunk and chunk + kChunksAtOnce.
struct ValueThread {
  int group = static_cast<int>(threadIdx.x) / kWarp;
  int word = static_cast<int>(threadIdx.x) % kWarp / kChunksAtOnce;
  int chunk = static_cast<int>(threadIdx.x) % kChunksAtOnce;

  /// Key of the tile in one of the word's slots.
  [[nodiscard]] __device__ int key(int slot) const {
    return numerics::key_of_slot(group * numerics::kKeyGroup + word * kWordSlots + slot);
  }
};

/// The four codes of one channel, the first slot in the lowest byte, and what rounding left.
__device__ __forceinline__ std::uint32_t encode_word(float (&coordinates)[kWordSlots]) {
  const std::uint16_t low = ptx::cvt_rn_satfinite_e4m3x2_f32(coordinates[0], coordinates[1]);
  const std::uint16_t high = ptx::cvt_rn_satfinite_e4m3x2_f32(coordinates[2], coordinates[3]);
  return static_cast<std::uint32_t>(low) | static_cast<std::uint32_t>(high) << 16;
}

__device__ __forceinline__ void subtract_codes(float (&coordinates)[kWordSlots],
                                               std::uint32_t codes) {
  const float2 low = decode_pair(static_cast<std::uint16_t>(codes));
  const float2 high = decode_pair(static_cast<std::uint16_t>(codes >> 16));
  coordinates[0] = coordinates[0] - low.x;
  coordinates[1] = coordinates[1] - low.y;
  coordinates[2] = coordinates[2] - high.x;
  coordinates[3] = coordinates[3] - high.y;
}

/// 16 bytes of a row of ones: the code of 1 for keys below `counted`.
__device__ __forceinline__ uint4 ones_unit(int unit, int counted) {
  std::uint32_t words[kGroupWords] = {};
#pragma unroll
  for (int i = 0; i < numerics::kKeyGroup; ++i) {
    const int key = numerics::key_of_slot(unit * numerics::kKeyGroup + i);
    const std::uint32_t code = key < counted ? numerics::kE4m3One : 0u;
    words[i / kWordSlots] |= code << (i % kWordSlots * 8);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

/// Writes a block of packed V. Residuals of channels that schedule::has_spare_residual() names for
/// `spare_head_dim` go with the codes; keys below `counted` count in the denominator. `energies` is
/// null or takes the energy of what rounding left of each key. `wait` returns when the parameters
/// can be read.
template <ElementType kType, bool kAligned, ValueContent kContent, class Wait>
__device__ __forceinline__ void write_value_tile(const TileTokens& tile, int counted,
                                                 int spare_head_dim, const Wait& wait,
                                                 const numerics::HeadPlan& plan, float* energies,
                                                 ValueTile& shared, int ones_rows,
                                                 std::byte* block) {
  constexpr int kPasses = kRowThreads / kChunksAtOnce;
  const ValueThread thread;
  RawChunk<kType> raw[kPasses][kWordSlots];
  std::uint32_t present = 0;  // 0xFF in the bytes of keys that exist
  tile.visit_rows([&](const auto& rows) {
#pragma unroll
    for (int slot = 0; slot < kWordSlots; ++slot) {
      const int key = thread.key(slot);
      const bool exists = key < tile.count;
      if (exists) present |= 0xFFu << (slot * 8);
      const std::byte* source = rows.row(key, exists);
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        const int chunk = thread.chunk + pass * kChunksAtOnce;
        raw[pass][slot] =
            load_chunk<kType, kAligned>(source, chunk, exists && chunk < tile.tokens.chunks);
      }
    }
  });
  wait();
  float key_energies[kWordSlots] = {};
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int chunk = thread.chunk + pass * kChunksAtOnce;
    Chunk means;
    Chunk multipliers;
    Chunk scales;
    load_table(plan.value_means, chunk, means);
    load_table(plan.value_multipliers, chunk, multipliers);
    if (kContent == ValueContent::codes && energies != nullptr) {
      load_table(plan.value_scales, chunk, scales);
    }
    Chunk values[kWordSlots];
#pragma unroll
    for (int slot = 0; slot < kWordSlots; ++slot) to_floats<kType>(raw[pass][slot], values[slot]);
    float sums[kWordSlots] = {};
    // A thread has a channel and the one whose place its residual may take.
    static_assert(kChunksAtOnce * kChunkChannels == schedule::kSpareDistance && kPasses == 2);
    const int first_channel = thread.chunk * kChunkChannels;
    const bool spare = schedule::has_spare_residual(first_channel, spare_head_dim);
    if (spare && pass == 1) break;
#pragma unroll
    for (int c = 0; c < kChunkChannels; ++c) {
      float coordinates[kWordSlots];
#pragma unroll
      for (int slot = 0; slot < kWordSlots; ++slot) {
        coordinates[slot] = (values[slot][c] - means[c]) * multipliers[c];
      }
      std::uint32_t word = encode_word(coordinates);
      if constexpr (kContent == ValueContent::residuals) {
        subtract_codes(coordinates, word);
        word = encode_word(coordinates);
      } else if (energies != nullptr) {
        subtract_codes(coordinates, word);
#pragma unroll
        for (int slot = 0; slot < kWordSlots; ++slot) {
          const float weighted = coordinates[slot] * scales[c];
          sums[slot] = __fmaf_rn(weighted, weighted, sums[slot]);
        }
      }
      const auto store = [&](int channel, std::uint32_t bytes) {
        shared[channel][thread.group ^ (thread.chunk % kChannelUnits)][thread.word] =
            bytes & present;
      };
      store(chunk * kChunkChannels + c, word);
      if (spare) {
        subtract_codes(coordinates, word);
        store(first_channel + schedule::kSpareDistance + c, encode_word(coordinates));
      }
    }
    if (kContent == ValueContent::codes && energies != nullptr) {
      // Chunks of one pass, then the two passes: the balanced tree over sixteen chunks.
#pragma unroll
      for (int slot = 0; slot < kWordSlots; ++slot) {
        const float sum = sum_lanes<kChunksAtOnce>(sums[slot]);
        key_energies[slot] = pass == 0 ? sum : key_energies[slot] + sum;
      }
    }
  }
  if (kContent == ValueContent::codes && energies != nullptr && thread.chunk == 0) {
#pragma unroll
    for (int slot = 0; slot < kWordSlots; ++slot) {
      if (thread.key(slot) < tile.count) energies[thread.key(slot)] = key_energies[slot];
    }
  }
  __syncthreads();
  auto* out = reinterpret_cast<uint4*>(block);
  constexpr int kCodeUnits = numerics::kHeadDim * kChannelUnits;
#pragma unroll
  for (int i = 0; i < kCodeUnits / kTileThreads; ++i) {
    const int index = static_cast<int>(threadIdx.x) + i * kTileThreads;
    const int channel = index / kChannelUnits;
    const int unit = index % kChannelUnits ^ (channel / kChunkChannels % kChannelUnits);
    out[index] = *reinterpret_cast<const uint4*>(shared[channel][unit]);
  }
  constexpr int kColumnUnits = numerics::kValueColumns * kChannelUnits;
  for (int i = static_cast<int>(threadIdx.x); i < kColumnUnits + ones_rows * kChannelUnits;
       i += kTileThreads) {
    out[kCodeUnits + i] = i < kColumnUnits ? uint4{} : ones_unit(i % kChannelUnits, counted);
  }
}

}  // namespace openvc::cuda::prepare
