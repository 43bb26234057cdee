// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/kernel_config.hpp"
#include "numerics/contract.hpp"

namespace openvc::cuda::sm89 {

/// Place of a byte of a tile whose rows have kRowBytes: neighbouring rows have their 16-byte chunks
/// in other banks, so that eight rows of one column of chunks, a matrix of ldmatrix, are in all
/// banks once.
template <int kRowBytes>
__device__ constexpr std::uint32_t swizzled(std::uint32_t offset) {
  static_assert(kRowBytes == 128 || kRowBytes == 32);
  return offset ^ (offset >> 3 & (kRowBytes - 16));
}

/// Shared memory of a block. Q is in registers. Rows of K are keys, rows of V channels, residual
/// columns and ones; tiles are swizzled.
template <class Config>
struct alignas(128) Storage {
  static constexpr KernelConfig kConfig = Config::kValue;
  static constexpr bool kWithColumns = kConfig.max_extra_steps > 0;
  static constexpr int kKeyColumnTile = numerics::kKeyBlock * kStepBytes;  // of one k-step

  struct alignas(128) KeyTile {
    std::uint8_t codes[numerics::kKeyBlock * numerics::kHeadDim];
  };
  struct alignas(128) KeyColumns {
    std::uint8_t codes[kKeyColumnTile];
  };
  struct alignas(128) ValueTile {
    std::uint8_t codes[Config::kShape.value_rows * numerics::kKeyBlock];
  };

  KeyTile keys[kConfig.key_stages];
  ValueTile values[kConfig.value_stages];

  // Of the K tiles, step by step; one that nobody uses in a kernel without them.
  KeyColumns key_columns[kWithColumns ? kConfig.key_stages * kConfig.max_extra_steps : 1];

  // Barriers, named for the event that completes a phase.
  alignas(8) std::uint64_t key_full[kConfig.key_stages];  // the K tile has arrived
  std::uint64_t key_empty[kConfig.key_stages];            // every warp has used it
  std::uint64_t value_full[kConfig.value_stages];         // the V tile has arrived
  std::uint64_t value_empty[kConfig.value_stages];        // every warp has used it

  [[nodiscard]] __device__ KeyColumns& columns(std::uint32_t stage, int step) {
    return key_columns[stage * kConfig.max_extra_steps + static_cast<std::uint32_t>(step)];
  }
};

}  // namespace openvc::cuda::sm89
