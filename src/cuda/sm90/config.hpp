// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "cuda/attention/kernel_config.hpp"
#include "cuda/sm90/launch.hpp"
#include "numerics/bits.hpp"
#include "numerics/contract.hpp"

// Shape of the Hopper kernel. Nothing in this file may change a result.
namespace openvc::cuda::sm90 {

// Warpgroup 0 loads, one warp for each kind of tile so that none waits for another's stage.
// Warpgroups 1 and 2 compute, each for 64 query rows, the height of a wgmma.
enum class WarpRole : int {
  key_loader,    // K tiles and their residual columns
  value_loader,  // V tiles
  query_loader,  // Q tiles and their residual columns; scales and means of V
  idle,
  consumer,  // both products, softmax, output
};

inline constexpr int kConsumerWarpgroups = 2;
inline constexpr int kConsumerWarps = kConsumerWarpgroups * kWarpgroupWarps;
inline constexpr int kWarps = kWarpgroupWarps + kConsumerWarps;
inline constexpr int kThreads = kWarps * kWarpThreads;

/// Role of a warp of the block.
OPENVC_HD constexpr WarpRole warp_role(int warp) {
  return warp < kWarpgroupWarps ? static_cast<WarpRole>(warp) : WarpRole::consumer;
}

// Registers of a thread: at launch 65536 / 384, rounded down to 8; then setmaxnreg hands those of
// the loading warpgroup to the consumers. It counts whole warpgroups.
inline constexpr int kLaunchRegisters = 168;

OPENVC_HD constexpr int role_registers(WarpRole role) {
  return role == WarpRole::consumer ? 240 : 24;
}
static_assert([] {
  int registers = 0;
  for (int warp = 0; warp < kWarps; ++warp) {
    registers += kWarpThreads * role_registers(warp_role(warp));
  }
  return registers <= kThreads * kLaunchRegisters;
}());

// Tile sizes.
inline constexpr int kRowsPerWarpgroup = 64;
inline constexpr int kRowsPerBlock = kConsumerWarpgroups * kRowsPerWarpgroup;
inline constexpr TileShape kTileShape = tile_shape(kRowsPerBlock, kPackedFormat);
static_assert(kPackedFormat.query_tile % (2 * kRowsPerBlock) == 0);
/// Behind the channels of V come its residual columns and one row of ones: eight, the granularity
/// of a product's N dimension.
inline constexpr int kValueRows = kTileShape.value_rows;
static_assert(kPackedFormat.ones_rows == 1 && kValueRows % 8 == 0);
inline constexpr int kSharedMemoryLimit = 232'448;  // bytes a block can opt in to on sm_90

/// Base of all configurations.
struct Hopper {
  static constexpr TileShape kShape = kTileShape;
};

}  // namespace openvc::cuda::sm90
