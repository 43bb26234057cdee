// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/prepare.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/prepare_plan.hpp"
#include "cpu/prepare_quantize.hpp"
#include "cpu/prepare_statistics.hpp"
#include "cpu/repair.hpp"
#include "cpu/row_tile.hpp"
#include "numerics/contract.hpp"

namespace openvc::cpu {
namespace {

/// Heads that are prepared together. More of them keep all threads busy on short sequences; fewer
/// bound the memory for partial sums, which is proportional to their tokens.
std::int64_t heads_per_round(const schedule::Problem& problem) {
  constexpr std::int64_t kTokensPerRound = std::int64_t{1} << 19;
  constexpr std::int64_t kMinHeads = 4;
  const std::int64_t tokens = std::max(problem.queries, problem.keys);
  return std::clamp(kTokensPerRound / tokens, kMinHeads,
                    std::max(kMinHeads, problem.batch_heads()));
}

/// Prepares the heads [first, first + count).
class Round {
 public:
  Round(const schedule::PrepareRequest& request, const BlockWriter& writer, std::int64_t first,
        std::int64_t count, ThreadPool& pool)
      : request_(request), writer_(writer), first_(first), count_(count), pool_(pool) {}

  void run(std::span<HeadPlan> plans, RowTiles& tiles) {
    const auto statistics = collect_statistics(request_, first_, count_, pool_);
    recipes_.resize(statistics.size());
    pool_.parallel_for(count_, [&](std::int64_t head, int) {
      const auto index = static_cast<std::size_t>(head);
      recipes_[index] = plan_head(request_, first_ + head, statistics[index],
                                  plans[static_cast<std::size_t>(first_ + head)]);
      writer_.write_head(first_ + head, recipes_[index]);
    });
    quantize(tiles);
    if (request_.problem.repair_rows > 0) repair(tiles);
  }

 private:
  [[nodiscard]] const HeadRecipe& recipe(std::int64_t head) const {
    return recipes_[static_cast<std::size_t>(head)];
  }

  void quantize(RowTiles& tiles) {
    const schedule::Problem& problem = request_.problem;
    const bool repairs = problem.repair_rows > 0;
    if (repairs) energies_.resize(static_cast<std::size_t>(count_ * problem.keys));
    const std::int64_t query_tiles = problem.padded_queries() / RowTile::kRows;
    const std::int64_t tasks = query_tiles + problem.key_blocks();
    pool_.parallel_for(count_ * tasks, [&](std::int64_t task, int worker) {
      const std::int64_t head = task / tasks;
      const std::int64_t part = task % tasks;
      RowTile& tile = tiles.of_worker(worker);
      if (part < query_tiles) {
        writer_.write_queries(first_ + head, part, recipe(head), tile);
        return;
      }
      const std::int64_t key_block = part - query_tiles;
      writer_.write_keys(first_ + head, key_block, recipe(head), tile);
      float* energies =
          repairs ? energies_.data() + head * problem.keys + key_block * numerics::kKeyBlock
                  : nullptr;
      writer_.write_values(first_ + head, key_block, recipe(head), tile, energies);
    });
  }

  void repair(RowTiles& tiles) {
    const schedule::Problem& problem = request_.problem;
    pool_.parallel_for(count_, [&](std::int64_t head, int worker) {
      const std::span<const float> energies(energies_.data() + head * problem.keys,
                                            static_cast<std::size_t>(problem.keys));
      const auto tokens = select_repair_tokens(energies, problem.repair_rows);
      for (std::int64_t block = 0; block < problem.repair_blocks(); ++block) {
        writer_.write_repair_block(
            first_ + head, block, tokens.data() + block * numerics::kKeyBlock,
            rows_in_tile(problem.repair_rows, block), recipe(head), tiles.of_worker(worker));
      }
    });
  }

  const schedule::PrepareRequest& request_;
  const BlockWriter& writer_;
  std::int64_t first_;
  std::int64_t count_;
  ThreadPool& pool_;
  std::vector<HeadRecipe> recipes_;
  std::vector<float> energies_;  // [count][keys], only for repair
};

}  // namespace

void prepare(const schedule::PrepareRequest& request, std::byte* block, std::span<HeadPlan> plans,
             ThreadPool& pool) {
  const schedule::PreparedLayout layout = schedule::prepared_layout(request);
  const BlockWriter writer(request, layout, block);
  RowTiles tiles(pool.size());
  const std::int64_t heads = request.problem.batch_heads();
  const std::int64_t per_round = heads_per_round(request.problem);
  for (std::int64_t first = 0; first < heads; first += per_round) {
    Round(request, writer, first, std::min(per_round, heads - first), pool).run(plans, tiles);
  }
}

}  // namespace openvc::cpu
