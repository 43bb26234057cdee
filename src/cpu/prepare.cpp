// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/prepare.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cpu/head_axes.hpp"
#include "cpu/prepare_quantize.hpp"
#include "cpu/prepare_statistics.hpp"
#include "cpu/repair.hpp"
#include "cpu/row_tile.hpp"
#include "numerics/contract.hpp"
#include "numerics/plan_layer.hpp"

namespace openvc::cpu {
namespace {

/// Quantises all heads by their plans.
class Quantization {
 public:
  Quantization(const schedule::PrepareRequest& request, const BlockWriter& writer,
               std::span<const numerics::HeadPlan> plans, ThreadPool& pool)
      : request_(request),
        writer_(writer),
        plans_(plans),
        pool_(pool),
        query_tiles_(writer.layout().query_rows / RowTile::kRows),
        tiles_(pool.size()) {}

  void run() {
    const schedule::Problem& problem = request_.problem;
    if (problem.repair_rows > 0) {
      energies_.resize(static_cast<std::size_t>(problem.batch_heads() * problem.keys));
    }
    const std::int64_t tasks = query_tiles_ + problem.key_blocks();
    pool_.parallel_for(problem.batch_heads() * tasks, [&](std::int64_t task, int worker) {
      write(task / tasks, task % tasks, tiles_.of_worker(worker));
    });
    if (problem.repair_rows == 0) return;
    pool_.parallel_for(problem.batch_heads(), [&](std::int64_t head, int worker) {
      repair(head, tiles_.of_worker(worker));
    });
  }

 private:
  [[nodiscard]] const numerics::HeadPlan& plan(std::int64_t head) const {
    return plans_[static_cast<std::size_t>(head)];
  }

  /// One tile of queries, or one block of keys and values.
  void write(std::int64_t head, std::int64_t part, RowTile& tile) {
    if (part == 0) writer_.write_head(head, plan(head));
    if (part < query_tiles_) return writer_.write_queries(head, part, plan(head), tile);
    const std::int64_t key_block = part - query_tiles_;
    writer_.write_keys(head, key_block, plan(head), tile);
    float* energies = energies_.empty() ? nullptr
                                        : energies_.data() + head * request_.problem.keys +
                                              key_block * numerics::kKeyBlock;
    writer_.write_values(head, key_block, plan(head), tile, energies);
  }

  void repair(std::int64_t head, RowTile& tile) const {
    const schedule::Problem& problem = request_.problem;
    const std::span<const float> energies(energies_.data() + head * problem.keys,
                                          static_cast<std::size_t>(problem.keys));
    const auto tokens = select_repair_tokens(energies, problem.repair_rows);
    for (std::int64_t block = 0; block < problem.repair_blocks(); ++block) {
      writer_.write_repair_block(head, block, tokens.data() + block * numerics::kKeyBlock,
                                 rows_in_tile(problem.repair_rows, block), plan(head), tile);
    }
  }

  const schedule::PrepareRequest& request_;
  const BlockWriter& writer_;
  std::span<const numerics::HeadPlan> plans_;
  ThreadPool& pool_;
  std::int64_t query_tiles_;
  RowTiles tiles_;
  std::vector<float> energies_;  // [bh][keys], only for repair
};

}  // namespace

std::vector<numerics::HeadPlan> prepare(const schedule::PrepareRequest& request, std::byte* block,
                                        ThreadPool& pool) {
  std::vector<numerics::HeadStatistics> statistics = collect_statistics(request, pool);
  const HeadAxes axes(request, statistics, pool);
  std::vector<numerics::HeadPlan> plans =
      numerics::plan_layer(statistics, {.queries = request.problem.queries,
                                        .keys = request.problem.keys,
                                        .softmax_scale = request.softmax_scale,
                                        .numerics = request.numerics});
  const std::vector<HeadBases> bases = axes.bases(plans, pool);
  const BlockWriter writer(request, bases, block);
  Quantization(request, writer, plans, pool).run();
  return plans;
}

}  // namespace openvc::cpu
