// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"

// Shape of the Hopper kernel. Nothing in this file may change a result.
namespace openvc::cuda::sm90 {

inline constexpr int kWarpThreads = 32;
inline constexpr int kWarpgroupWarps = 4;
inline constexpr int kWarpgroupThreads = kWarpgroupWarps * kWarpThreads;

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
inline constexpr int kStepBytes = numerics::kColumnsPerStep;          // one k-step of a product
inline constexpr int kScoreSteps = numerics::kHeadDim / kStepBytes;   // k-steps of Q K^T
inline constexpr int kValueSteps = numerics::kKeyBlock / kStepBytes;  // k-steps of P V
/// Behind the channels of V come its residual columns and one row of ones: eight, the granularity
/// of a product's N dimension.
inline constexpr int kOnesRows = 1;
inline constexpr int kValueRows =
    numerics::kHeadDim + numerics::kValueColumns + kOnesRows;  // N of P V
static_assert(kValueRows % 8 == 0);
inline constexpr int kSharedMemoryLimit = 232'448;  // bytes a block can opt in to on sm_90

/// What a kernel is compiled for. Kernels are templates over a type whose kValue is one of these.
struct KernelConfig {
  int cluster_size = 2;     // blocks that share K and V tiles by multicast: 1 or 2
  int max_extra_steps = 0;  // planes of residual columns that fit into a stage: 0, 2 or 4
  int key_stages = 5;
  int value_stages = 5;
  bool causal = false;  // the dense main loop has no mask code
};

}  // namespace openvc::cuda::sm90
