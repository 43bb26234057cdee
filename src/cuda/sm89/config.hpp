// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "cuda/attention/kernel_config.hpp"
#include "cuda/sm89/launch.hpp"
#include "numerics/bits.hpp"
#include "numerics/contract.hpp"

// Shape of the kernel for GPUs without wgmma and tensor memory. Nothing in this file may change a
// result.
namespace openvc::cuda::sm89 {

// All warps are alike: each computes 16 query rows, the height of an mma, and copies its share of K
// and V. With a ninth warp to copy, a thread could have 168 registers instead of 255: registers
// belong to the four schedulers of a multiprocessor, and one of them would have three warps.
inline constexpr int kWarps = 8;
inline constexpr int kThreads = kWarps * kWarpThreads;

// Tile sizes.
inline constexpr int kRowsPerWarp = 16;
inline constexpr int kRowsPerBlock = kWarps * kRowsPerWarp;
inline constexpr TileShape kTileShape = tile_shape(kRowsPerBlock, kPackedFormat);
static_assert(kPackedFormat.query_tile % kRowsPerBlock == 0);
static_assert(numerics::kQueryBlock % kRowsPerBlock == 0, "its rows visit keys in one order");
/// Behind the channels of V come its residual columns and one row of ones: eight, the width of a
/// product.
inline constexpr int kValueRows = kTileShape.value_rows;
static_assert(kPackedFormat.ones_rows == 1 && kValueRows % 8 == 0);
inline constexpr int kSharedMemoryLimit = 101'376;  // bytes a block can opt in to on sm_89, sm_120

/// Base of all configurations.
struct Ada {
  static constexpr TileShape kShape = kTileShape;
};

}  // namespace openvc::cuda::sm89
