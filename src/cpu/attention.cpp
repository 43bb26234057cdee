// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "cpu/aligned_buffer.hpp"
#include "cpu/attention_kernel.hpp"
#include "cpu/decoded_heads.hpp"
#include "cpu/prepared_sections.hpp"
#include "numerics/half.hpp"
#include "numerics/key_permutation.hpp"
#include "schedule/mask.hpp"
#include "schedule/traversal.hpp"

namespace openvc::cpu {
namespace {

using numerics::kColumnsPerStep;
using numerics::kHeadDim;
using numerics::kKeyBlock;
using numerics::kQueryBlock;

/// Working memory of one thread.
struct Workspace {
  Workspace(const AttentionKernel& kernel, int max_columns)
      : query_bytes(kernel.word_bytes(kernel.group * max_columns)),
        query_rows(query_bytes),
        queries(query_bytes * static_cast<std::size_t>(kQueryBlock / kernel.group)),
        probabilities(kernel.word_bytes(kKeyBlock * kernel.group)),
        scores(static_cast<std::size_t>(kKeyBlock * kernel.group)),
        accumulators(static_cast<std::size_t>(kQueryBlock * kMaxValueRows)) {}

  std::size_t query_bytes;              // of one group
  AlignedBuffer<std::byte> query_rows;  // one group, as decoded
  AlignedBuffer<std::byte> queries;     // [group]
  AlignedBuffer<std::byte> probabilities;
  AlignedBuffer<float> scores;
  AlignedBuffer<float> accumulators;   // [group](kMaxValueRows, group)
  std::vector<float> basis;            // (axis, channel) of a head whose V is on axes
  std::vector<std::byte> padded_rows;  // of the output, where it has fewer than kHeadDim channels
  RowStates rows{};
  std::vector<std::uint8_t> query_has_nan = std::vector<std::uint8_t>(kQueryBlock);  // [group]
  alignas(kVectorAlignment) float block_max[kQueryBlock];
  alignas(kVectorAlignment) std::int32_t visible[kQueryBlock];
};

/// Consecutive groups of queries of one query block: the work of one task.
struct QueryTask {
  std::int64_t bh;
  std::int64_t query_block;
  int first_group;
  int groups;
};

class AttentionRun {
 public:
  AttentionRun(const schedule::PreparedView& inputs, const MutableTensorView& out,
               float* log_sum_exp, const AttentionKernel& kernel, ThreadPool& pool)
      : inputs_(inputs),
        problem_(inputs.problem),
        out_(out),
        log_sum_exp_(log_sum_exp),
        kernel_(kernel),
        pool_(pool),
        sections_(inputs),
        workspaces_(static_cast<std::size_t>(pool.size())) {}

  void run() {
    const int groups_per_task = choose_groups_per_task();
    const int parts = kQueryBlock / kernel_.group / groups_per_task;
    const std::int64_t tasks = problem_.query_blocks() * parts;
    const std::int64_t per_round = heads_per_round(tasks);
    DecodedHeads heads(kernel_, inputs_, per_round);
    for (std::int64_t first = 0; first < problem_.batch_heads(); first += per_round) {
      const std::int64_t count = std::min(per_round, problem_.batch_heads() - first);
      heads.decode(first, count, pool_);
      pool_.parallel_for(count * tasks, [&](std::int64_t index, int worker) {
        // Last queries first: with a causal mask they have the most work.
        const std::int64_t part = tasks - 1 - index % tasks;
        attend({.bh = first + index / tasks,
                .query_block = part / parts,
                .first_group = static_cast<int>(part % parts) * groups_per_task,
                .groups = groups_per_task},
               heads, workspace(worker));
      });
    }
  }

 private:
  /// Tasks smaller than a query block, where there are too few blocks for all threads.
  [[nodiscard]] int choose_groups_per_task() const {
    constexpr std::int64_t kTasksPerThread = 4;
    int groups = kQueryBlock / kernel_.group;
    while (groups > 1 && groups % 2 == 0 &&
           problem_.batch_heads() * problem_.query_blocks() * (kQueryBlock / kernel_.group) /
                   groups <
               kTasksPerThread * pool_.size()) {
      groups /= 2;
    }
    return groups;
  }

  /// Heads that are decoded at a time: enough to keep all threads busy to the end of a round, and
  /// as many as a shared cache is likely to hold.
  [[nodiscard]] std::int64_t heads_per_round(std::int64_t tasks_per_head) const {
    constexpr std::size_t kRoundBytes = std::size_t{8} << 20;
    constexpr std::int64_t kTasksPerThread = 8;
    const auto fitting =
        static_cast<std::int64_t>(kRoundBytes / DecodedHeads::head_bytes(kernel_, inputs_));
    const std::int64_t busy = numerics::ceil_div(kTasksPerThread * pool_.size(), tasks_per_head);
    const std::int64_t heads = problem_.batch_heads();
    const std::int64_t rounds =
        numerics::ceil_div(heads, std::max({fitting, busy, std::int64_t{1}}));
    return numerics::ceil_div(heads, rounds);
  }

  [[nodiscard]] Workspace& workspace(int worker) {
    auto& place = workspaces_[static_cast<std::size_t>(worker)];
    if (!place) {
      place = std::make_unique<Workspace>(kernel_,
                                          kHeadDim + inputs_.max_extra_steps * kColumnsPerStep);
    }
    return *place;
  }

  void attend(const QueryTask& task, const DecodedHeads& heads, Workspace& space) const {
    const int existing = existing_groups(task);
    if (sections_.head_rule(task.bh).values_on_axes()) load_basis(task.bh, space.basis);
    const schedule::TileSequence tiles = schedule::tile_sequence(problem_, task.query_block);
    for (int g = task.first_group; g < existing; ++g) start_group(task, g, space);
    for (int step = 0; step < tiles.count; ++step) {
      check_interrupt();
      const bool repair = tiles.is_repair(step);
      const int key_block = tiles.block(step);
      const DecodedBlock block = heads.block(task.bh, key_block);
      const int index = repair ? key_block - tiles.repair_begin : key_block;
      for (int g = task.first_group; g < existing; ++g) {
        visit(task, g, index, block, repair, space);
      }
    }
    for (int g = task.first_group; g < existing; ++g) store(task, g, space);
  }

  [[nodiscard]] std::int64_t first_query(const QueryTask& task, int g) const {
    return task.query_block * kQueryBlock + g * kernel_.group;
  }

  /// End of the task's groups that hold queries.
  [[nodiscard]] int existing_groups(const QueryTask& task) const {
    const std::int64_t queries = problem_.queries - task.query_block * kQueryBlock;
    const std::int64_t groups = numerics::ceil_div(queries, kernel_.group);
    return static_cast<int>(std::min<std::int64_t>(task.first_group + task.groups, groups));
  }

  /// Transposed: a row of the product is a sum of rows of `basis`.
  void load_basis(std::int64_t bh, std::vector<float>& basis) const {
    constexpr std::size_t kDim = kHeadDim;
    constexpr std::size_t kColumns = kDim + numerics::kValueAxes;
    const std::uint16_t* packed = sections_.value_basis(bh);
    basis.resize(kDim * kDim);
    for (std::size_t axis = 0; axis < kDim; ++axis) {
      for (std::size_t c = 0; c < kDim; ++c) {
        float& x = basis[axis * kDim + c];
        x = numerics::bfloat16_to_float(packed[c * kColumns + axis]);
        if (axis >= numerics::kValueAxes) continue;
        x += numerics::bfloat16_to_float(packed[c * kColumns + kDim + axis]);
      }
    }
  }

  void start_group(const QueryTask& task, int g, Workspace& space) const {
    const int group = kernel_.group;
    const std::int64_t first = first_query(task, g);
    const int columns = sections_.columns(task.bh);
    const auto row_bytes = static_cast<std::int64_t>(kernel_.word_bytes(columns));
    std::byte* rows = space.query_rows.data();
    bool nan = kernel_.decode(sections_.query_row(task.bh, first), kHeadDim, group, kHeadDim, rows,
                              row_bytes);
    for (int step = 0; kHeadDim + step * kColumnsPerStep < columns; ++step) {
      std::byte* place = rows + kernel_.word_bytes(kHeadDim + step * kColumnsPerStep);
      nan |= kernel_.decode(sections_.query_columns(step, task.bh, first), kColumnsPerStep, group,
                            kColumnsPerStep, place, row_bytes);
    }
    space.query_has_nan[static_cast<std::size_t>(g)] = nan ? 1 : 0;
    kernel_.pack_queries(rows, columns, queries_of(g, space));
    const numerics::RowState empty = numerics::empty_row(sections_.head_rule(task.bh));
    for (int i = 0; i < group; ++i) space.rows.set_row(g * group + i, empty);
    std::fill_n(accumulators_of(g, space), group * kMaxValueRows, 0.0f);
  }

  /// Leading keys of a block that the queries of a group see.
  struct Visibility {
    int fewest;
    int most;
  };

  /// `visible` takes the number of each query, unless all see the whole block.
  [[nodiscard]] Visibility visibility(std::int64_t first, std::int64_t index, bool repair,
                                      std::int32_t* visible) const {
    const std::int64_t last = std::min(first + kernel_.group, problem_.queries) - 1;
    if (!repair &&
        schedule::tile_class(problem_, first, last, index) == schedule::TileClass::full) {
      return {kKeyBlock, kKeyBlock};
    }
    Visibility result{kKeyBlock, 0};
    for (int i = 0; i < kernel_.group; ++i) {
      // Lanes without a query repeat the last one. Repair rows are visible to all queries; their
      // padding, like that of keys, is to none.
      const std::int64_t query = std::min(first + i, last);
      const std::int64_t end =
          repair ? problem_.repair_rows : schedule::visible_keys(problem_, query);
      visible[i] = static_cast<std::int32_t>(
          std::clamp<std::int64_t>(end - index * kKeyBlock, 0, kKeyBlock));
      result.fewest = std::min(result.fewest, visible[i]);
      result.most = std::max(result.most, visible[i]);
    }
    return result;
  }

  /// One group of queries meets one block of keys; `index` is the key block or the repair block.
  void visit(const QueryTask& task, int g, std::int64_t index, const DecodedBlock& block,
             bool repair, Workspace& space) const {
    const int group = kernel_.group;
    const Visibility seen = visibility(first_query(task, g), index, repair, space.visible);
    if (seen.most == 0) return;
    const int used = static_cast<int>(numerics::round_up(seen.most, numerics::kKeyGroup));

    kernel_.score({.queries = queries_of(g, space),
                   .keys = block.keys,
                   .columns = sections_.columns(task.bh),
                   .used_keys = used,
                   .fewest_visible = seen.fewest,
                   .visible = space.visible,
                   .scores = space.scores.data(),
                   .block_max = space.block_max});
    const bool rescaled = kernel_.cast(
        {.scores = space.scores.data(),
         .block_max = space.block_max,
         .used_keys = used,
         .rule = sections_.head_rule(task.bh),
         .has_nan = block.has_nan || space.query_has_nan[static_cast<std::size_t>(g)] != 0,
         .repair = repair,
         .rows = &space.rows,
         .first_query = g * group,
         .probabilities = space.probabilities.data()});
    kernel_.accumulate({.values = block.values,
                        .rows = sections_.value_rows(task.bh),
                        .probabilities = space.probabilities.data(),
                        .used_keys = used,
                        .weight = space.rows.weight + g * group,
                        .rescale = rescaled ? space.rows.rescale + g * group : nullptr,
                        .accumulators = accumulators_of(g, space)});
  }

  void store(const QueryTask& task, int g, Workspace& space) const {
    const int group = kernel_.group;
    const std::int64_t first = first_query(task, g);
    const auto queries = static_cast<int>(std::min<std::int64_t>(group, problem_.queries - first));
    const std::int64_t batch = task.bh / problem_.heads;
    const std::int64_t head = task.bh % problem_.heads;
    const std::int64_t offset = out_.view().offset(batch, first, head);
    const std::size_t element = element_size(out_.type);
    std::byte* out =
        static_cast<std::byte*>(out_.data) + offset * static_cast<std::int64_t>(element);
    const std::int64_t stride = out_.view().offset(0, 1, 0);
    const bool padded = problem_.head_dim < kHeadDim;
    if (padded) {
      space.padded_rows.resize(static_cast<std::size_t>(group * kHeadDim) * element);
      add_spare_residuals(accumulators_of(g, space));
    }
    kernel_.store(
        {.accumulators = accumulators_of(g, space),
         .sum = space.rows.sum + g * group,
         .basis = sections_.head_rule(task.bh).values_on_axes() ? space.basis.data() : nullptr,
         .value_scales = sections_.value_scales(task.bh),
         .value_means = sections_.value_means(task.bh),
         .queries = queries,
         .type = out_.type,
         .out = padded ? space.padded_rows.data() : out,
         .query_stride = padded ? kHeadDim : stride});
    if (padded) {
      for (int i = 0; i < queries; ++i) {
        std::memcpy(out + i * stride * static_cast<std::int64_t>(element),
                    space.padded_rows.data() + static_cast<std::size_t>(i * kHeadDim) * element,
                    static_cast<std::size_t>(problem_.head_dim) * element);
      }
    }
    if (log_sum_exp_ == nullptr) return;
    const float* shifts = sections_.smoothing_shifts(task.bh);
    for (int i = 0; i < queries; ++i) {
      const numerics::RowState row = space.rows.row(g * group + i);
      log_sum_exp_[task.bh * problem_.queries + first + i] =
          numerics::log_sum_exp(row, sections_.head_rule(task.bh), std::log(row.sum),
                                shifts != nullptr ? shifts[first + i] : 0.0f);
    }
  }

  void add_spare_residuals(float* accumulators) const {
    constexpr int kDistance = schedule::kSpareDistance;
    for (int c = 0; c < kDistance; ++c) {
      if (!schedule::has_spare_residual(c, problem_.head_dim)) continue;
      float* sums = accumulators + c * kernel_.group;
      for (int i = 0; i < kernel_.group; ++i) sums[i] += sums[kDistance * kernel_.group + i];
    }
  }

  [[nodiscard]] std::byte* queries_of(int g, Workspace& space) const {
    return space.queries.data() + static_cast<std::size_t>(g) * space.query_bytes;
  }
  [[nodiscard]] float* accumulators_of(int g, Workspace& space) const {
    return space.accumulators.data() + g * kernel_.group * kMaxValueRows;
  }

  const schedule::PreparedView& inputs_;
  const schedule::Problem& problem_;
  const MutableTensorView& out_;
  float* log_sum_exp_;
  const AttentionKernel& kernel_;
  ThreadPool& pool_;
  PreparedSections sections_;
  std::vector<std::unique_ptr<Workspace>> workspaces_;
};

}  // namespace

void attention_prepared(const schedule::PreparedView& inputs, const MutableTensorView& out,
                        float* log_sum_exp, ThreadPool& pool) {
  attention_prepared(inputs, out, log_sum_exp, pool, attention_kernel());
}

void attention_prepared(const schedule::PreparedView& inputs, const MutableTensorView& out,
                        float* log_sum_exp, ThreadPool& pool, const AttentionKernel& kernel) {
  AttentionRun(inputs, out, log_sum_exp, kernel, pool).run();
}

}  // namespace openvc::cpu
