// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/attention/kernel_config.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cuda {

/// Swizzle atoms and so tiles start at multiples of this.
inline constexpr int kTileAlignment = 1024;

/// Shared memory of a block: what loaders and consumers of all architectures share. Host code asks
/// only for its size.
///
/// Tiles are K-major with 128-byte rows and the 128-byte swizzle (residual columns: 32-byte rows,
/// 32-byte swizzle), as TMA writes and tensor cores read them.
template <class Config>
struct alignas(kTileAlignment) TileStorage {
  static constexpr KernelConfig kConfig = Config::kValue;
  static constexpr TileShape kShape = Config::kShape;
  static constexpr bool kWithColumns = kConfig.max_extra_steps > 0;
  static constexpr int kQueryColumnTile = kShape.query_rows * kStepBytes;  // of one k-step
  static constexpr int kKeyColumnTile = numerics::kKeyBlock * kStepBytes;

  template <int kRows>
  struct alignas(kTileAlignment) PlainTile {
    std::uint8_t codes[kRows * numerics::kHeadDim];
  };
  template <int kRows>
  struct alignas(kTileAlignment) TileWithColumns {
    std::uint8_t codes[kRows * numerics::kHeadDim];
    std::uint8_t columns[(kWithColumns ? kConfig.max_extra_steps : 1) * kRows * kStepBytes];
  };
  template <int kRows>
  using Tile = std::conditional_t<kWithColumns, TileWithColumns<kRows>, PlainTile<kRows>>;

  struct alignas(kTileAlignment) ValueTile {
    std::uint8_t codes[kShape.value_rows * numerics::kKeyBlock];  // PreparedLayout
  };

  /// The code of V, for the output. Comes with the Q tile.
  struct ValueCode {
    float scales[numerics::kHeadDim];
    float means[numerics::kHeadDim];
  };

  Tile<kShape.query_rows> queries;
  Tile<numerics::kKeyBlock> keys[kConfig.key_stages];
  ValueTile values[kConfig.value_stages];

  // Of the current work item and, as soon as its Q tile is loaded, of the next.
  alignas(16) ValueCode value_codes[2];

  // Barriers, named for the event that completes a phase.
  alignas(8) std::uint64_t query_full;              // the Q tile and the code of V have arrived
  std::uint64_t query_empty;                        // no product reads the Q tile any more
  std::uint64_t key_full[kConfig.key_stages];       // the K tile has arrived
  std::uint64_t key_empty[kConfig.key_stages];      // every block of the cluster has used it
  std::uint64_t value_full[kConfig.value_stages];   // the V tile has arrived
  std::uint64_t value_empty[kConfig.value_stages];  // every block of the cluster has used it
};

/// Bytes of dynamic shared memory that a block asks for: it may start anywhere.
template <class Shared>
inline constexpr std::size_t kBytesWithAlignment = sizeof(Shared) + alignof(Shared);

}  // namespace openvc::cuda
