// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/prepare_statistics.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/load_row.hpp"
#include "cpu/row_kernels.hpp"
#include "cpu/row_tile.hpp"
#include "numerics/bits.hpp"
#include "numerics/canonical_sum.hpp"
#include "numerics/contract.hpp"
#include "numerics/plan_scores.hpp"

namespace openvc::cpu {
namespace {

using numerics::Extent;
using numerics::kHeadDim;
static_assert(RowTile::kRows == numerics::kReductionGroup, "one tile is one canonical group");

/// Heads whose partial sums are held together. More of them keep all threads busy on short
/// sequences; fewer bound the memory, which is proportional to their tokens.
std::int64_t heads_per_round(const schedule::Problem& problem) {
  constexpr std::int64_t kTokensPerRound = std::int64_t{1} << 19;
  constexpr std::int64_t kMinHeads = 4;
  const std::int64_t tokens = std::max(problem.queries, problem.keys);
  return std::clamp(kTokensPerRound / tokens, kMinHeads,
                    std::max(kMinHeads, problem.batch_heads()));
}

/// Partial sums of all groups of some heads: [head][group][kHeadDim].
class PartialSums {
 public:
  PartialSums(std::int64_t heads, std::int64_t groups)
      : groups_(groups), values_(static_cast<std::size_t>(heads * groups * kHeadDim)) {}

  float* group(std::int64_t head, std::int64_t group) {
    return values_.data() + (head * groups_ + group) * kHeadDim;
  }

  /// Sums of all tokens of a head; the partial sums are lost.
  const float* reduce(std::int64_t head) {
    reduce_rows(group(head, 0), groups_);
    return group(head, 0);
  }

 private:
  std::int64_t groups_;
  std::vector<float> values_;
};

Extent tile_extent(const RowTile& tile, int count) {
  return {largest_magnitude_bits(tile.rows, count), largest_row_sum_squares(tile.rows, count)};
}

void merge(Extent& extent, const Extent& other) {
  extent.magnitude_bits = std::max(extent.magnitude_bits, other.magnitude_bits);
  extent.row_sum_squares = std::max(extent.row_sum_squares, other.row_sum_squares);
}

/// The pass over some heads. Every group of tokens is one task with its own results; the results of
/// a head are merged afterwards in a fixed order.
class StatisticsPass {
 public:
  StatisticsPass(const schedule::PrepareRequest& request, std::int64_t first_head,
                 std::int64_t heads, int workers)
      : request_(request),
        first_head_(first_head),
        query_groups_(numerics::ceil_div(request.problem.queries, RowTile::kRows)),
        key_groups_(numerics::ceil_div(request.problem.keys, RowTile::kRows)),
        query_squares_(heads, query_groups_),
        key_sums_(heads, key_groups_),
        key_squares_(heads, key_groups_),
        value_sums_(heads, key_groups_),
        value_max_(heads, key_groups_),
        value_min_(heads, key_groups_),
        query_extents_(static_cast<std::size_t>(heads * query_groups_)),
        key_extents_(static_cast<std::size_t>(heads * key_groups_)),
        value_extents_(static_cast<std::size_t>(heads * key_groups_)),
        tiles_(workers) {}

  [[nodiscard]] std::int64_t tasks_per_head() const { return query_groups_ + key_groups_; }

  void run(std::int64_t task, int worker) {
    const std::int64_t head = task / tasks_per_head();
    const std::int64_t group = task % tasks_per_head();
    RowTile& tile = tiles_.of_worker(worker);
    if (group < query_groups_) {
      visit_queries(head, group, tile);
    } else {
      visit_keys(head, group - query_groups_, tile);
    }
  }

  void finish(std::int64_t head, numerics::HeadStatistics& result) {
    numerics::ScoreStatistics& scores = result.scores;
    std::copy_n(query_squares_.reduce(head), kHeadDim, scores.query_squares);
    std::copy_n(key_sums_.reduce(head), kHeadDim, scores.key_sums);
    std::copy_n(key_squares_.reduce(head), kHeadDim, scores.key_squares);
    for (std::int64_t g = 0; g < query_groups_; ++g) {
      merge(scores.query, query_extents_[static_cast<std::size_t>(head * query_groups_ + g)]);
    }
    const float* sums = value_sums_.reduce(head);
    for (int c = 0; c < kHeadDim; ++c) result.values[c].sum = sums[c];
    for (std::int64_t g = 0; g < key_groups_; ++g) {
      merge(scores.key, key_extents_[static_cast<std::size_t>(head * key_groups_ + g)]);
      merge(result.value_extent, value_extents_[static_cast<std::size_t>(head * key_groups_ + g)]);
      for (int c = 0; c < kHeadDim; ++c) {
        numerics::ChannelRange& range = result.values[c];
        range.max = std::max(range.max, value_max_.group(head, g)[c]);
        range.min = std::min(range.min, value_min_.group(head, g)[c]);
      }
    }
    result.values_finite = result.value_extent.finite();
  }

 private:
  void load_queries(RowTile& tile, std::int64_t head, std::int64_t group, int count) const {
    const std::int64_t bh = first_head_ + head;
    const std::int64_t heads = request_.problem.heads;
    tile.load(request_.q, bh / heads, bh % heads, group * RowTile::kRows, count);
  }

  void load_keys(RowTile& tile, const TensorView& tensor, std::int64_t head, std::int64_t group,
                 int count) const {
    const std::int64_t bh = first_head_ + head;
    const schedule::Problem& problem = request_.problem;
    tile.load(tensor, bh / problem.heads, problem.key_head(bh % problem.heads),
              group * RowTile::kRows, count);
  }

  void visit_queries(std::int64_t head, std::int64_t group, RowTile& tile) {
    const int count = rows_in_tile(request_.problem.queries, group);
    load_queries(tile, head, group, count);
    query_extents_[static_cast<std::size_t>(head * query_groups_ + group)] =
        tile_extent(tile, count);
    sum_squared_rows(tile.rows, count, query_squares_.group(head, group));
  }

  void visit_keys(std::int64_t head, std::int64_t group, RowTile& tile) {
    const int count = rows_in_tile(request_.problem.keys, group);
    const auto extent = static_cast<std::size_t>(head * key_groups_ + group);
    load_keys(tile, request_.k, head, group, count);
    key_extents_[extent] = tile_extent(tile, count);
    sum_rows(tile.rows, count, key_sums_.group(head, group));
    sum_squared_rows(tile.rows, count, key_squares_.group(head, group));

    load_keys(tile, request_.v, head, group, count);
    value_extents_[extent] = tile_extent(tile, count);
    sum_rows(tile.rows, count, value_sums_.group(head, group));
    float* max = value_max_.group(head, group);
    float* min = value_min_.group(head, group);
    std::fill_n(max, kHeadDim, -numerics::infinity());
    std::fill_n(min, kHeadDim, numerics::infinity());
    extend_range(tile.rows, count, max, min);
  }

  const schedule::PrepareRequest& request_;
  std::int64_t first_head_;
  std::int64_t query_groups_;
  std::int64_t key_groups_;
  PartialSums query_squares_;
  PartialSums key_sums_;
  PartialSums key_squares_;
  PartialSums value_sums_;
  PartialSums value_max_;
  PartialSums value_min_;
  std::vector<Extent> query_extents_;
  std::vector<Extent> key_extents_;
  std::vector<Extent> value_extents_;
  RowTiles tiles_;
};

}  // namespace

std::vector<numerics::HeadStatistics> collect_statistics(const schedule::PrepareRequest& request,
                                                         ThreadPool& pool) {
  const std::int64_t heads = request.problem.batch_heads();
  std::vector<numerics::HeadStatistics> statistics(static_cast<std::size_t>(heads));
  const std::int64_t per_round = heads_per_round(request.problem);
  for (std::int64_t first = 0; first < heads; first += per_round) {
    const std::int64_t count = std::min(per_round, heads - first);
    StatisticsPass pass(request, first, count, pool.size());
    pool.parallel_for(count * pass.tasks_per_head(),
                      [&pass](std::int64_t task, int worker) { pass.run(task, worker); });
    pool.parallel_for(count, [&](std::int64_t head, int) {
      pass.finish(head, statistics[static_cast<std::size_t>(first + head)]);
    });
  }
  return statistics;
}

}  // namespace openvc::cpu
