// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/kernel_config.hpp"
#include "cuda/sm100/launch.hpp"
#include "numerics/bits.hpp"
#include "numerics/contract.hpp"

// Shape of the Blackwell kernel. Nothing in this file may change a result.
namespace openvc::cuda::sm100 {

// Warpgroup 0 loads and multiplies, one warp for each kind of tile so that none waits for another's
// stage, and one that issues all products. Warpgroups 1 and 2 compute, each for one of the two
// query tiles of the block: 128 rows, the height of a product, a row for each thread.
enum class WarpRole : int {
  key_loader,    // K tiles and their residual columns
  value_loader,  // V tiles
  query_loader,  // Q tiles and their residual columns; scales and means of V
  multiplier,    // both products
  consumer,      // softmax, sums of the blocks, output
};

inline constexpr int kQueryTiles = 2;
inline constexpr int kConsumerWarps = kQueryTiles * kWarpgroupWarps;
inline constexpr int kWarps = kWarpgroupWarps + kConsumerWarps;
inline constexpr int kThreads = kWarps * kWarpThreads;

/// Role of a warp of the block.
OPENVC_HD constexpr WarpRole warp_role(int warp) {
  return warp < kWarpgroupWarps ? static_cast<WarpRole>(warp) : WarpRole::consumer;
}

// Registers of a thread: at launch 65536 / 384, rounded down to 8; then setmaxnreg hands those of
// the first warpgroup to the consumers. It counts whole warpgroups.
inline constexpr int kLaunchRegisters = 168;

OPENVC_HD constexpr int role_registers(WarpRole role) {
  return role == WarpRole::consumer ? 232 : 40;
}
static_assert([] {
  int registers = 0;
  for (int warp = 0; warp < kWarps; ++warp) {
    registers += kWarpThreads * role_registers(warp_role(warp));
  }
  return registers <= kThreads * kLaunchRegisters;
}());

// Tile sizes.
inline constexpr int kRowsPerTile = 128;  // M of a product
inline constexpr int kRowsPerBlock = kQueryTiles * kRowsPerTile;
inline constexpr TileShape kTileShape = tile_shape(kRowsPerBlock, kPackedFormat);
static_assert(kPackedFormat.query_tile % kRowsPerBlock == 0);
inline constexpr int kValueRows = kTileShape.value_rows;
static_assert(kValueRows % 16 == 0);
inline constexpr int kSharedMemoryLimit = 232'448;  // bytes a block can opt in to on sm_100

// Columns of tensor memory. Scores are binary16, one in each column; four probabilities lie in a
// column. Both query tiles share the sums of P V. They are multiplied in two parts, so that one is
// read while the tensor core is at the other, or at the scores of the other tile.
namespace tensor_memory {
inline constexpr int kScores = 0;  // of both query tiles
inline constexpr int kScoreColumns = numerics::kKeyBlock;
inline constexpr int kProbabilities = kScores + kQueryTiles * kScoreColumns;  // of both
inline constexpr int kProbabilityColumns = numerics::kKeyBlock / 4;
inline constexpr int kProbabilityParts = 2;  // handed over one by one
inline constexpr int kPartColumns = kProbabilityColumns / kProbabilityParts;
inline constexpr int kPartial = kProbabilities + kQueryTiles * kProbabilityColumns;
inline constexpr int kStepColumns = kStepBytes / 4;  // of the probabilities of a k-step
inline constexpr int kStepsPerPart = kPartColumns / kStepColumns;
inline constexpr int kPartialParts = 2;
/// First column of a part.
OPENVC_HD constexpr int part_begin(int part) { return part == 0 ? 0 : part == 1 ? 80 : kValueRows; }
inline constexpr int kAllocated = 512;
static_assert(kPartial + kValueRows <= kAllocated);
static_assert(part_begin(1) % 16 == 0, "N of a product");
}  // namespace tensor_memory

/// Base of all configurations.
struct Blackwell {
  static constexpr TileShape kShape = kTileShape;
};

}  // namespace openvc::cuda::sm100
