// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/canonical_sum.hpp"
#include "numerics/contract.hpp"
#include "numerics/head_plan.hpp"
#include "numerics/moments.hpp"
#include "numerics/principal_axes.hpp"
#include "numerics/token_sample.hpp"
#include "schedule/prepared_layout.hpp"
#include "schedule/problem.hpp"

// Device memory that the thread blocks of a preparation share.
namespace openvc::cuda::prepare {

/// Tokens of one tile: one canonical group, one block of keys, half a block of queries.
inline constexpr int kTileRows = numerics::kKeyBlock;
static_assert(kTileRows == numerics::kReductionGroup);

/// Statistics per channel, reduced tile by tile; those of a part of a head are neighbours.
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
  kValueRowSquares,
  kExtentStatistics
};

/// What is decided together: the codes of Q and K, those of V.
enum HeadPart : int { kScores, kValues, kHeadParts };

/// Tensors of which a sample is taken, and the parts of a sample, a thread block each.
enum SampledTensor : int { kSampledQuery, kSampledKey, kSampledValue, kSampledTensors };
inline constexpr int kSampleParts = 8;
inline constexpr int kSamplePartTokens = static_cast<int>(numerics::kSampleTokens) / kSampleParts;

/// The canonical tree over the tiles of a tensor. Level 0 has a row of partial results per tile,
/// and a row of each further level joins kReductionGroup rows of the level before; the last level
/// has at most that many rows, which the plan of the head joins.
struct TileTree {
  std::int64_t tiles = 0;
  int levels = 0;               // after level 0
  std::int64_t last_level = 0;  // where its rows start among those of all levels
  std::int64_t all_rows = 0;

  [[nodiscard]] OPENVC_HD static constexpr std::int64_t rows(std::int64_t tiles, int level) {
    for (int i = 0; i < level; ++i) tiles = numerics::ceil_div(tiles, numerics::kReductionGroup);
    return tiles;
  }
  /// Where the rows of a level start.
  [[nodiscard]] OPENVC_HD constexpr std::int64_t first_row(int level) const {
    std::int64_t row = 0;
    for (int i = 0; i < level; ++i) row += rows(tiles, i);
    return row;
  }
};

constexpr TileTree tile_tree(std::int64_t tiles) {
  TileTree tree{.tiles = tiles};
  while (TileTree::rows(tiles, tree.levels) > numerics::kReductionGroup) ++tree.levels;
  tree.last_level = tree.first_row(tree.levels);
  tree.all_rows = tree.first_row(tree.levels + 1);
  return tree;
}

/// Byte offsets from the start of the workspace.
struct WorkspaceLayout {
  std::int64_t query_tiles = 0;  // that hold tokens
  std::int64_t key_tiles = 0;
  TileTree tree;            // of the longer of the two
  int last_query_rows = 0;  // rows of the last level that tiles of Q have become
  int last_key_rows = 0;
  std::size_t plans = 0;          // numerics::HeadPlan [bh]
  std::size_t columns = 0;        // float [bh][statistic][row of any level][kHeadDim]
  std::size_t extents = 0;        // uint32 [bh][statistic][tile]
  std::size_t energies = 0;       // float [bh][key], only for repair
  std::size_t tokens = 0;         // int32 [bh][repair row]
  std::size_t selected_keys = 0;  // int32 [batch][key], only with a mask of keys
  // Only for requests that want principal axes, of Q and K or of V.
  bool with_axes = false;
  bool with_value_axes = false;
  std::size_t sample_ranges = 0;  // float [bh][tensor][part][max, min][kHeadDim]
  std::size_t moments = 0;        // numerics::Moments [bh][tensor]
  std::size_t axis_shares = 0;    // numerics::AxisShares [bh]
  std::size_t axes = 0;           // float [bh][kHeadDim][axis]
  std::size_t basis = 0;          // the matrix of a head, binary32 or narrower, [bh]
  std::size_t value_axes = 0;     // numerics::ValueAxes [bh]
  std::size_t value_matrix = 0;   // float [bh][kHeadDim][kValueAxes]
  std::size_t value_basis = 0;    // as `basis`
  std::size_t bytes = 0;

  [[nodiscard]] OPENVC_HD constexpr bool with_any_axes() const {
    return with_axes || with_value_axes;
  }
  /// Tiles of the tensor that a statistic of channels is taken from.
  [[nodiscard]] OPENVC_HD constexpr std::int64_t tiles_of(int column_statistic) const {
    return column_statistic == kQuerySquares ? query_tiles : key_tiles;
  }
};

constexpr WorkspaceLayout workspace_layout(const schedule::Problem& p, bool with_axes = false,
                                           bool with_value_axes = false,
                                           bool with_key_mask = false) {
  WorkspaceLayout layout;
  layout.query_tiles = numerics::ceil_div(p.queries, kTileRows);
  layout.key_tiles = numerics::ceil_div(p.keys, kTileRows);
  layout.tree =
      tile_tree(layout.query_tiles > layout.key_tiles ? layout.query_tiles : layout.key_tiles);
  const auto last_rows = [&](std::int64_t tiles) {
    return static_cast<int>(TileTree::rows(tiles, layout.tree.levels));
  };
  layout.last_query_rows = last_rows(layout.query_tiles);
  layout.last_key_rows = last_rows(layout.key_tiles);
  const auto heads = static_cast<std::size_t>(p.batch_heads());
  const auto rows = static_cast<std::size_t>(layout.tree.all_rows);
  const auto tiles = static_cast<std::size_t>(layout.tree.tiles);
  const auto repair_rows = static_cast<std::size_t>(p.repair_rows);
  std::size_t end = 0;
  const auto place = [&end](std::size_t bytes) {
    const std::size_t start = end;
    constexpr std::size_t kAlignment = schedule::kSectionAlignment;
    end = (end + bytes + kAlignment - 1) / kAlignment * kAlignment;
    return start;
  };
  layout.plans = place(heads * sizeof(numerics::HeadPlan));
  layout.columns = place(heads * kColumnStatistics * rows * numerics::kHeadDim * sizeof(float));
  layout.extents = place(heads * kExtentStatistics * tiles * sizeof(std::uint32_t));
  layout.energies =
      place(repair_rows > 0 ? heads * static_cast<std::size_t>(p.keys) * sizeof(float) : 0);
  layout.tokens = place(heads * repair_rows * sizeof(std::int32_t));
  layout.selected_keys =
      place(with_key_mask ? static_cast<std::size_t>(p.batch * p.keys) * sizeof(std::int32_t) : 0);
  constexpr std::size_t kDim = numerics::kHeadDim;
  layout.with_axes = with_axes;
  layout.with_value_axes = with_value_axes;
  if (with_axes || with_value_axes) {
    layout.sample_ranges = place(heads * kSampledTensors * kSampleParts * 2 * kDim * sizeof(float));
    layout.moments = place(heads * kSampledTensors * sizeof(numerics::Moments));
  }
  if (with_axes) {
    layout.axis_shares = place(heads * sizeof(numerics::AxisShares));
    layout.axes = place(heads * kDim * numerics::kMaxAxes * sizeof(float));
    layout.basis = place(heads * kDim * kDim * sizeof(float));
  }
  if (with_value_axes) {
    layout.value_axes = place(heads * sizeof(numerics::ValueAxes));
    layout.value_matrix = place(heads * kDim * numerics::kValueAxes * sizeof(float));
    layout.value_basis = place(heads * kDim * kDim * sizeof(float));
  }
  layout.bytes = end;
  return layout;
}

}  // namespace openvc::cuda::prepare
