// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The constants that change bits. A backend may choose its own tile sizes, stages and registers; it
// may not choose any number of this file. docs/numerics.md explains each of them and shows the
// measurements behind the defaults.
namespace openvc::numerics {

/// Raised whenever equal inputs may give other bytes than before.
inline constexpr int kContractVersion = 1;

/// Channels per head. Layouts are written in terms of this constant; other sizes are refused.
inline constexpr int kHeadDim = 128;

/// Keys that share one update of the running row maximum. It moves the points where rows are
/// rescaled and hence the rounding of probabilities, so it belongs to the contract.
inline constexpr int kKeyBlock = 128;

/// Queries that share one traversal order of the key blocks. Two thread blocks of 128 rows can then
/// share every key and value tile that they load.
inline constexpr int kQueryBlock = 256;

/// Key blocks to the right of a query's own block at which mid-window traversal starts.
inline constexpr int kMidWindowBlocks = 4;

/// One tensor-core k-step: 32 bytes of the contraction dimension.
inline constexpr int kColumnsPerStep = 32;

/// A residual channel takes two columns, q_lo x k_hi and q_hi x k_lo.
inline constexpr int kResidualChannelsPerStep = kColumnsPerStep / 2;

/// Largest number of extra k-steps of a head (64 channels).
inline constexpr int kMaxExtraSteps = 4;

}  // namespace openvc::numerics
