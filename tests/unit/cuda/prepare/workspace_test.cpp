// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/prepare/workspace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

// Host side of the preparation's device memory; nothing here runs on a device.
namespace openvc::cuda::prepare {
namespace {

TEST(TileTree, LevelsJoinGroupsUntilOneGroupIsLeft) {
  struct Expected {
    std::int64_t tiles;
    int levels;
    std::int64_t last_level;
    std::int64_t all_rows;
  };
  constexpr Expected kCases[] = {
      {1, 0, 0, 1},       {128, 0, 0, 128},         {129, 1, 129, 131},
      {574, 1, 574, 579}, {16384, 1, 16384, 16512}, {16385, 2, 16385 + 129, 16385 + 129 + 2},
  };
  for (const Expected& c : kCases) {
    const TileTree tree = tile_tree(c.tiles);
    EXPECT_EQ(tree.levels, c.levels) << c.tiles;
    EXPECT_EQ(tree.last_level, c.last_level) << c.tiles;
    EXPECT_EQ(tree.all_rows, c.all_rows) << c.tiles;
    EXPECT_LE(TileTree::rows(c.tiles, tree.levels), numerics::kReductionGroup) << c.tiles;
  }
}

// Cross-attention: the shorter tensor has as many levels as the longer one.
TEST(TileTree, ShorterTensorsEndInOneRow) {
  schedule::Problem p;
  p.queries = 1;
  p.keys = 40'000;
  const WorkspaceLayout layout = workspace_layout(p);
  EXPECT_EQ(layout.tree.levels, 1);
  EXPECT_EQ(layout.last_query_rows, 1);
  EXPECT_EQ(layout.last_key_rows, 3);
}

TEST(WorkspaceLayout, SectionsHoldWhatTheyAreForAndDoNotOverlap) {
  constexpr std::int64_t kTokens[] = {1, 128, 129, 16'385, 73'397};
  for (const std::int64_t queries : kTokens) {
    for (const std::int64_t keys : kTokens) {
      for (const std::int64_t repair_rows : {std::int64_t{0}, keys}) {
        schedule::Problem p;
        p.batch = 2;
        p.heads = 3;
        p.queries = queries;
        p.keys = keys;
        p.repair_rows = repair_rows;
        const bool with_axes = queries >= 129;
        const WorkspaceLayout w = workspace_layout(p, with_axes, keys >= 129);
        constexpr std::size_t kHeads = 6;
        const auto tiles = static_cast<std::size_t>((std::max(queries, keys) + 127) / 128);
        const auto rows = static_cast<std::size_t>(w.tree.all_rows);
        std::vector<std::pair<std::size_t, std::size_t>> sections = {
            {w.plans, kHeads * sizeof(numerics::HeadPlan)},
            {w.columns, kHeads * 6 * rows * 128 * 4},
            {w.extents, kHeads * 6 * tiles * 4},
            {w.energies, repair_rows > 0 ? kHeads * static_cast<std::size_t>(keys) * 4 : 0},
            {w.tokens, kHeads * static_cast<std::size_t>(repair_rows) * 4}};
        const bool with_value_axes = keys >= 129;
        if (with_axes || with_value_axes) {
          sections.insert(sections.end(),
                          {{w.sample_ranges, kHeads * 3 * 8 * 2 * 128 * 4},
                           {w.moments, kHeads * 3 * (128 * 8 + 128 * 4 + 128 * 128 * 4)}});
        }
        if (with_axes) {
          sections.insert(sections.end(), {{w.axis_shares, kHeads * sizeof(numerics::AxisShares)},
                                           {w.axes, kHeads * 128 * 64 * 4},
                                           {w.basis, kHeads * 128 * 128 * 4}});
        }
        if (with_value_axes) {
          sections.insert(sections.end(), {{w.value_axes, kHeads * sizeof(numerics::ValueAxes)},
                                           {w.value_matrix, kHeads * 128 * 8 * 4},
                                           {w.value_basis, kHeads * 128 * 128 * 4}});
        }
        sections.emplace_back(w.bytes, 0);
        for (std::size_t i = 0; i + 1 < sections.size(); ++i) {
          EXPECT_EQ(sections[i].first % schedule::kSectionAlignment, 0u);
          EXPECT_LE(sections[i].first + sections[i].second, sections[i + 1].first)
              << "section " << i << " of " << queries << " x " << keys;
        }
      }
    }
  }
}

}  // namespace
}  // namespace openvc::cuda::prepare
