// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "numerics/flush.hpp"
#include "numerics/plan.hpp"
#include "openvc/options.hpp"
#include "schedule/prepared_layout.hpp"
#include "schedule/problem.hpp"

// Device memory that the kernels of the preparation share. Partial results live for one round of
// heads, parameters and plans for the whole launch.
namespace openvc::cuda::prepare {

/// Tokens of one tile: one canonical group, one block of keys, half a block of queries.
inline constexpr int kTileRows = numerics::kKeyBlock;

/// Statistics per channel, reduced tile by tile. The canonical tree adds the first four.
enum ColumnStatistic : int {
  kQuerySquares,
  kKeySums,
  kKeySquares,
  kValueSums,
  kValueMax,
  kValueMin,
  kColumnStatistics
};

/// Maxima over all tokens, as bits of non-negative floats, which order like the numbers.
enum ExtentStatistic : int {
  kQueryMagnitude,
  kQueryRowSquares,
  kKeyMagnitude,
  kKeyRowSquares,
  kValueMagnitude,
  kExtentStatistics
};

/// What the second pass over a head needs besides its elements.
struct HeadParameters {
  float query_multiplier;
  float key_multiplier;
  std::int32_t extra_steps;
  std::int32_t rotated;
  float key_means[numerics::kHeadDim];
  float value_means[numerics::kHeadDim];
  float value_scales[numerics::kHeadDim];
  float value_multipliers[numerics::kHeadDim];
  std::uint8_t residual_channels[numerics::kMaxResidualChannels];
  numerics::FlushModel flush;
  std::int32_t finite;  // Q and K hold neither infinities nor NaNs
};
static_assert(sizeof(HeadParameters) % 16 == 0);

/// Byte offsets from the start of the workspace.
struct WorkspaceLayout {
  std::int64_t query_tiles = 0;  // that hold tokens
  std::int64_t key_tiles = 0;
  std::int64_t tiles = 0;      // the larger of the two: rows per head of `columns` and `extents`
  std::size_t plans = 0;       // HeadPlan [bh]
  std::size_t parameters = 0;  // HeadParameters [bh]
  std::size_t columns = 0;     // float [statistic][head of the round][tile][kHeadDim]
  std::size_t groups = 0;      // the same with one row per group of tiles
  std::size_t extents = 0;     // uint32 [statistic][head of the round][tile]
  std::size_t energies = 0;    // float [head of the round][key], only for repair
  std::size_t tokens = 0;      // int32 [head of the round][repair row]
  std::size_t bytes = 0;

  [[nodiscard]] OPENVC_HD constexpr std::int64_t tile_groups() const {
    return numerics::ceil_div(tiles, numerics::kReductionGroup);
  }
  /// Tiles of the tensor that a statistic of channels is taken from.
  [[nodiscard]] OPENVC_HD constexpr std::int64_t tiles_of(int column_statistic) const {
    return column_statistic == kQuerySquares ? query_tiles : key_tiles;
  }
};

constexpr WorkspaceLayout workspace_layout(const schedule::Problem& p,
                                           std::int64_t heads_per_round) {
  WorkspaceLayout layout;
  layout.query_tiles = numerics::ceil_div(p.queries, kTileRows);
  layout.key_tiles = numerics::ceil_div(p.keys, kTileRows);
  layout.tiles = layout.query_tiles > layout.key_tiles ? layout.query_tiles : layout.key_tiles;
  const auto bh = static_cast<std::size_t>(p.batch_heads());
  const auto round = static_cast<std::size_t>(heads_per_round);
  const auto tiles = static_cast<std::size_t>(layout.tiles);
  const auto groups = static_cast<std::size_t>(layout.tile_groups());
  const auto repair_rows = static_cast<std::size_t>(p.repair_rows);
  constexpr std::size_t kColumnRow = numerics::kHeadDim * sizeof(float);
  std::size_t end = 0;
  const auto place = [&end](std::size_t bytes) {
    const std::size_t start = end;
    constexpr std::size_t kAlignment = schedule::kSectionAlignment;
    end = (end + bytes + kAlignment - 1) / kAlignment * kAlignment;
    return start;
  };
  layout.plans = place(bh * sizeof(HeadPlan));
  layout.parameters = place(bh * sizeof(HeadParameters));
  layout.columns = place(kColumnStatistics * round * tiles * kColumnRow);
  layout.groups = place(kColumnStatistics * round * groups * kColumnRow);
  layout.extents = place(kExtentStatistics * round * tiles * sizeof(std::uint32_t));
  layout.energies =
      place(repair_rows > 0 ? round * static_cast<std::size_t>(p.keys) * sizeof(float) : 0);
  layout.tokens = place(round * repair_rows * sizeof(std::int32_t));
  layout.bytes = end;
  return layout;
}

}  // namespace openvc::cuda::prepare
