// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "numerics/contract.hpp"
#include "schedule/prepared_layout.hpp"

// What attention kernels of all architectures are described by. Nothing in this file may change a
// result.
namespace openvc::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr int kWarpgroupWarps = 4;
inline constexpr int kWarpgroupThreads = kWarpgroupWarps * kWarpThreads;

inline constexpr int kStepBytes = numerics::kColumnsPerStep;          // one k-step of a product
inline constexpr int kScoreSteps = numerics::kHeadDim / kStepBytes;   // k-steps of Q K^T
inline constexpr int kValueSteps = numerics::kKeyBlock / kStepBytes;  // k-steps of P V

/// Tiles of an architecture.
struct TileShape {
  int query_rows = 0;  // of a block
  int value_rows = 0;  // N of P V: channels, residual columns of V, rows of ones
};

/// The shape of kernels that read inputs packed in this format.
constexpr TileShape tile_shape(int query_rows, const schedule::PackedFormat& format) {
  return {query_rows, numerics::kHeadDim + numerics::kValueColumns + format.ones_rows};
}

/// What a kernel is compiled for. Kernels are templates over a type whose kValue is one of these
/// and whose kShape is the TileShape of its architecture.
struct KernelConfig {
  int cluster_size = 2;     // blocks that share K and V tiles by multicast: 1 or 2
  int max_extra_steps = 0;  // planes of residual columns that fit into a stage: 0, 2 or 4
  int key_stages = 5;
  int value_stages = 5;
  bool causal = false;  // the dense main loop has no mask code
};

}  // namespace openvc::cuda
