// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "numerics/contract.hpp"

// Shape of the Hopper kernel. Nothing in this file may change a result.
namespace openvc::cuda::sm90 {

inline constexpr int kWarpThreads = 32;
inline constexpr int kWarpgroupWarps = 4;
inline constexpr int kWarpgroupThreads = kWarpgroupWarps * kWarpThreads;

// Roles. One warpgroup loads, two compute; a computing warpgroup owns 64 query rows, the height of
// a wgmma. The loading warps are separate so that none of them ever waits for another's stage.
//
//   warpgroup 0   warp 0  key_loader     K tiles and their residual columns
//                 warp 1  value_loader   V tiles
//                 warp 2  query_loader   Q tiles and their residual columns
//                 warp 3  idle
//   warpgroup 1   rows  0..63  of the block: both products, softmax, output
//   warpgroup 2   rows 64..127
enum class LoaderRole : int { key_loader = 0, value_loader = 1, query_loader = 2 };

inline constexpr int kConsumerWarpgroups = 2;
inline constexpr int kConsumerWarps = kConsumerWarpgroups * kWarpgroupWarps;
inline constexpr int kThreads = (1 + kConsumerWarpgroups) * kWarpgroupThreads;

// Register budget. 168 at launch (65536 / 384, rounded down to 8), then redistributed.
inline constexpr int kLaunchRegisters = 168;
inline constexpr int kLoaderRegisters = 24;
inline constexpr int kConsumerRegisters = 240;
static_assert(kWarpgroupThreads * (kLoaderRegisters + kConsumerWarpgroups * kConsumerRegisters) <=
              kThreads * kLaunchRegisters);

// Tile sizes.
inline constexpr int kRowsPerWarpgroup = 64;
inline constexpr int kRowsPerBlock = kConsumerWarpgroups * kRowsPerWarpgroup;
inline constexpr int kStepBytes = numerics::kColumnsPerStep;          // one k-step of a product
inline constexpr int kScoreSteps = numerics::kHeadDim / kStepBytes;   // k-steps of Q K^T
inline constexpr int kValueSteps = numerics::kKeyBlock / kStepBytes;  // k-steps of P V
/// Rows of ones behind the channels of V: eight, the granularity of a product's N dimension.
inline constexpr int kOnesRows = 8;
inline constexpr int kValueRows = numerics::kHeadDim + kOnesRows;  // N of P V
inline constexpr int kSharedMemoryLimit = 232'448;  // bytes a block can opt in to on sm_90

/// What a kernel is compiled for. Kernels are templates over a type whose kValue is one of these.
struct KernelConfig {
  int cluster_size = 2;     // blocks that share K and V tiles by multicast: 1 or 2
  int max_extra_steps = 0;  // planes of residual columns that fit into a stage: 0, 2 or 4
  int key_stages = 5;
  int value_stages = 5;
  bool causal = false;  // masks scores; without, no instruction of the scan asks about masks
};

}  // namespace openvc::cuda::sm90
