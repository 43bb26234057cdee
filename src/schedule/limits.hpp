// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/canonical_sum.hpp"

// Sizes that every backend counts on. Whoever takes a problem from a user checks them.
namespace openvc::schedule {

/// Most tokens of Q, and of K and V, per head. Means and canonical sums are exact about that many
/// terms (numerics/v_quantize.hpp), and kernels count the tiles of a head with 32 bits.
inline constexpr std::int64_t kMaxTokens = (std::int64_t{1} << 27) - 1;

/// Most rows of prepared Q and K together, padding included, over all heads of a call. One row
/// takes up to a kilobyte, so that this is 64 TiB, more than any machine has; byte offsets stay far
/// inside 64 bits, and kernels, whose blocks have 128 rows, count their blocks with 31.
inline constexpr std::int64_t kMaxRows = std::int64_t{1} << 36;

/// Queries are padded to a multiple of at most this many rows, whatever the packed format.
inline constexpr std::int64_t kMaxQueryTile = 256;

/// Head sizes are multiples of this, up to kHeadDim: what a thread takes of a row, and 16 bytes of
/// elements of 16 bits, so that rows of a dense tensor start where wide loads can.
inline constexpr std::int64_t kHeadDimStep = numerics::kRowChunk;

/// Most channels of exact attention, which takes any head size.
inline constexpr std::int64_t kMaxExactChannels = std::int64_t{1} << 16;

}  // namespace openvc::schedule
