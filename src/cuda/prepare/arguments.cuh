// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/prepare/workspace.hpp"
#include "numerics/contract.hpp"
#include "openvc/options.hpp"
#include "schedule/prepared_layout.hpp"
#include "schedule/problem.hpp"

namespace openvc::cuda::prepare {

/// A [B, S, H, D] tensor. Strides count bytes and are zero for axes of length 1.
struct Source {
  const std::byte* data;
  std::int64_t batch_stride;
  std::int64_t row_stride;
  std::int64_t head_stride;
  std::int64_t tokens;       // of a batch
  int chunks;                // of kRowChunk channels in a row; those behind it are zero
  unsigned heads_per_group;  // heads of Q that share one of this tensor

  /// Token 0 of a head. Numbers of heads fit into 32 bits, as those of blocks do, and division by
  /// 64 bits takes a hundred instructions.
  [[nodiscard]] __device__ const std::byte* head(std::int64_t bh, std::int64_t heads) const {
    const auto number = static_cast<unsigned>(bh);
    const auto each = static_cast<unsigned>(heads);
    return data + number / each * batch_stride + number % each / heads_per_group * head_stride;
  }
};

/// Rows of consecutive tokens. An address alone, where there is none.
struct ConsecutiveRows {
  const std::byte* first;
  std::int64_t stride;  // bytes

  [[nodiscard]] __device__ __forceinline__ const std::byte* row(int i, bool) const {
    return first + i * stride;
  }
};

/// Rows of tokens that a list names.
struct ListedRows {
  const std::byte* first;  // of token 0
  std::int64_t stride;     // bytes
  const std::int32_t* tokens;

  [[nodiscard]] __device__ __forceinline__ const std::byte* row(int i, bool exists) const {
    return exists ? first + tokens[i] * stride : first;
  }
};

/// The tokens of a head that take part.
struct HeadTokens {
  const std::byte* first;        // token 0 of the sequence
  std::int64_t stride;           // bytes
  int chunks;                    // of a row
  std::int64_t count;            // of tokens
  const std::int32_t* selected;  // their numbers in the tensor; null if they are all, in order

  [[nodiscard]] __device__ __forceinline__ const std::byte* row(std::int64_t i) const {
    return first + (selected == nullptr ? i : selected[i]) * stride;
  }

  /// Calls visit(rows) with the rows from a token on. Loads of many rows are all in flight together
  /// only where no row has a choice of its own.
  template <class Visit>
  __device__ __forceinline__ void visit_rows(std::int64_t from, const Visit& visit) const {
    if (selected == nullptr) {
      visit(ConsecutiveRows{first + from * stride, stride});
    } else {
      visit(ListedRows{first, stride, selected + from});
    }
  }
};

/// Argument of every kernel.
struct Arguments {
  Source q;
  Source k;
  Source v;
  schedule::Problem problem;
  schedule::PreparedLayout block_layout;
  WorkspaceLayout workspace_layout;
  std::byte* block;
  std::byte* workspace;
  float softmax_scale;
  NumericOptions numerics;
  bool with_log_sum_exp;
  bool with_spare_residuals;
  bool with_bounds;
  KeySelection selection;
  PackedSequences sequences;
  int multiprocessors;  // of the device

  /// The problem of a head: of the tokens that take part.
  [[nodiscard]] __device__ schedule::Problem problem_of(std::int64_t bh) const {
    return schedule::problem_of_head(problem, bounds(), bh);
  }
  [[nodiscard]] __device__ schedule::SequenceBounds* bounds() const {
    return with_bounds ? reinterpret_cast<schedule::SequenceBounds*>(block + block_layout.bounds)
                       : nullptr;
  }
  /// Numbers of the keys of a sequence that take part; null if they are the first ones.
  [[nodiscard]] __device__ std::int32_t* selected_keys(std::int64_t batch) const {
    if (selection.mask == nullptr) return nullptr;
    return reinterpret_cast<std::int32_t*>(workspace + workspace_layout.selected_keys) +
           batch * problem.keys;
  }
  [[nodiscard]] __device__ schedule::SequenceBounds bounds_of(std::int64_t bh) const {
    return schedule::bounds_of_head(problem, bounds(), bh);
  }
  [[nodiscard]] __device__ HeadTokens queries(std::int64_t bh) const {
    const schedule::SequenceBounds sequence = bounds_of(bh);
    return {q.head(bh, problem.heads) + sequence.first_query * q.row_stride, q.row_stride, q.chunks,
            sequence.queries, nullptr};
  }
  /// Of K or V.
  [[nodiscard]] __device__ HeadTokens keys(const Source& tensor, std::int64_t bh) const {
    const auto batch = static_cast<unsigned>(bh) / static_cast<unsigned>(problem.heads);
    const schedule::SequenceBounds sequence = bounds_of(bh);
    return {tensor.head(bh, problem.heads) + sequence.first_key * tensor.row_stride,
            tensor.row_stride, tensor.chunks, sequence.keys, selected_keys(batch)};
  }

  [[nodiscard]] __device__ numerics::HeadPlan& plan(std::int64_t bh) const {
    return reinterpret_cast<numerics::HeadPlan*>(workspace + workspace_layout.plans)[bh];
  }
  /// kHeadDim partial results. `row` counts the rows of all levels.
  [[nodiscard]] __device__ float* columns(int statistic, std::int64_t bh, std::int64_t row) const {
    const std::int64_t first =
        (bh * kColumnStatistics + statistic) * workspace_layout.tree.all_rows;
    return reinterpret_cast<float*>(workspace + workspace_layout.columns) +
           (first + row) * numerics::kHeadDim;
  }
  [[nodiscard]] __device__ std::uint32_t* extents(int statistic, std::int64_t bh) const {
    return reinterpret_cast<std::uint32_t*>(workspace + workspace_layout.extents) +
           (bh * kExtentStatistics + statistic) * workspace_layout.tree.tiles;
  }
  [[nodiscard]] __device__ float* energies(std::int64_t bh) const {
    return reinterpret_cast<float*>(workspace + workspace_layout.energies) + bh * problem.keys;
  }
  [[nodiscard]] __device__ std::int32_t* tokens(std::int64_t bh) const {
    return reinterpret_cast<std::int32_t*>(workspace + workspace_layout.tokens) +
           bh * problem.repair_rows;
  }

  /// Channels of V whose residuals may have a place among those behind them; none at kHeadDim.
  [[nodiscard]] __device__ int spare_head_dim() const {
    return with_spare_residuals ? problem.head_dim : numerics::kHeadDim;
  }

  // Principal axes.
  [[nodiscard]] __device__ int axes_columns() const {
    return numerics.max_extra_steps * numerics::kResidualChannelsPerStep;
  }
  /// Largest elements of the channels, then the smallest.
  [[nodiscard]] __device__ float* sample_ranges(std::int64_t bh, int tensor, int part) const {
    return reinterpret_cast<float*>(workspace + workspace_layout.sample_ranges) +
           ((bh * kSampledTensors + tensor) * kSampleParts + part) * 2 * numerics::kHeadDim;
  }
  [[nodiscard]] __device__ numerics::Moments& moments(std::int64_t bh, int tensor) const {
    return reinterpret_cast<numerics::Moments*>(
        workspace + workspace_layout.moments)[bh * kSampledTensors + tensor];
  }
  [[nodiscard]] __device__ numerics::AxisShares& axis_shares(std::int64_t bh) const {
    return reinterpret_cast<numerics::AxisShares*>(workspace + workspace_layout.axis_shares)[bh];
  }
  [[nodiscard]] __device__ numerics::ValueAxes& value_axes(std::int64_t bh) const {
    return reinterpret_cast<numerics::ValueAxes*>(workspace + workspace_layout.value_axes)[bh];
  }
  /// Axes of Q and K, or of V, [channel][axis].
  [[nodiscard]] __device__ float* axes(int part, std::int64_t bh) const {
    const bool of_scores = part == kScores;
    return reinterpret_cast<float*>(
               workspace + (of_scores ? workspace_layout.axes : workspace_layout.value_matrix)) +
           bh * numerics::kHeadDim * (of_scores ? numerics::kMaxAxes : numerics::kValueAxes);
  }
  /// Room for binary32 elements; those of inputs of 16 bits have their type.
  template <class Element>
  [[nodiscard]] __device__ Element* basis(int part, std::int64_t bh) const {
    constexpr std::int64_t kBytes = sizeof(float) * numerics::kHeadDim * numerics::kHeadDim;
    return reinterpret_cast<Element*>(
        workspace + (part == kScores ? workspace_layout.basis : workspace_layout.value_basis) +
        bh * kBytes);
  }
  // Sections of the block.
  [[nodiscard]] __device__ std::byte* query_row(std::int64_t bh, std::int64_t row) const {
    return block + block_layout.query_at(bh, row);
  }
  [[nodiscard]] __device__ std::byte* query_columns(int step, std::int64_t bh,
                                                    std::int64_t row) const {
    return block + block_layout.query_columns_at(step, bh, row);
  }
  [[nodiscard]] __device__ std::byte* key_row(std::int64_t bh, std::int64_t row) const {
    return block + block_layout.key_at(bh, row);
  }
  [[nodiscard]] __device__ std::byte* key_columns(int step, std::int64_t bh,
                                                  std::int64_t row) const {
    return block + block_layout.key_columns_at(step, bh, row);
  }
  [[nodiscard]] __device__ std::byte* value_block(std::int64_t bh, std::int64_t tile) const {
    return block + block_layout.value_block_at(bh, tile);
  }
  [[nodiscard]] __device__ numerics::HeadRule& head_rule(std::int64_t bh) const {
    return *reinterpret_cast<numerics::HeadRule*>(block + block_layout.head_rule_at(bh));
  }
  [[nodiscard]] __device__ std::uint16_t* packed_value_basis(std::int64_t bh) const {
    return reinterpret_cast<std::uint16_t*>(block + block_layout.value_basis_at(bh));
  }
  [[nodiscard]] __device__ float* value_scales(std::int64_t bh) const {
    return reinterpret_cast<float*>(block + block_layout.value_scales_at(bh));
  }
  [[nodiscard]] __device__ float* value_means(std::int64_t bh) const {
    return reinterpret_cast<float*>(block + block_layout.value_means_at(bh));
  }
  [[nodiscard]] __device__ float* smoothing_shifts(std::int64_t bh, std::int64_t query) const {
    return reinterpret_cast<float*>(block + block_layout.smoothing_shift_at(bh, query));
  }
};

/// Position of the block with a number in a grid that has `each` blocks per head.
struct HeadBlock {
  std::int64_t bh;
  std::int64_t index;

  __device__ explicit HeadBlock(std::int64_t each, unsigned number = blockIdx.x)
      : bh(number / static_cast<unsigned>(each)), index(number % static_cast<unsigned>(each)) {}
};

/// Tokens of a tile of `count` tokens; 0 for a tile of padding.
__device__ inline int rows_in_tile(std::int64_t count, std::int64_t tile) {
  const std::int64_t left = count - tile * kTileRows;
  return left <= 0 ? 0 : (left < kTileRows ? static_cast<int>(left) : kTileRows);
}

}  // namespace openvc::cuda::prepare
