// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/prepare_quantize.hpp"

#include <algorithm>
#include <cstring>

#include "cpu/axes_kernels.hpp"
#include "cpu/load_row.hpp"
#include "cpu/row_kernels.hpp"
#include "numerics/contract.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/hadamard.hpp"
#include "numerics/key_permutation.hpp"
#include "numerics/orthogonal_basis.hpp"
#include "numerics/qk_quantize.hpp"

namespace openvc::cpu {
namespace {

using numerics::kColumnsPerStep;
using numerics::kHeadDim;
using numerics::kResidualChannelsPerStep;

/// Where the two columns of a residual channel sit inside a step.
struct ColumnPlaces {
  int (*low)(int position);
  int (*high)(int position);
};
constexpr ColumnPlaces kQueryPlaces{numerics::query_low_column, numerics::query_high_column};
constexpr ColumnPlaces kKeyPlaces{numerics::key_low_column, numerics::key_high_column};

void write_column_row(const float* row, float multiplier, const std::uint8_t* channels,
                      const ColumnPlaces& places, std::uint8_t* columns) {
  for (int position = 0; position < kResidualChannelsPerStep; ++position) {
    const numerics::Quantized x = numerics::quantize(row[channels[position]], multiplier);
    columns[places.low(position)] = numerics::encode_low(x);
    columns[places.high(position)] = numerics::encode_high(x);
  }
}

/// Rows [count, RowTile::kRows) of a section of `width` bytes a row become zero.
void clear_padding(std::uint8_t* rows, int count, int width) {
  std::memset(rows + static_cast<std::ptrdiff_t>(count) * width, 0,
              static_cast<std::size_t>(RowTile::kRows - count) * static_cast<std::size_t>(width));
}

/// Those rows become copies of `row`.
void repeat_in_padding(const std::uint8_t* row, std::uint8_t* rows, int count, int width) {
  for (int i = count; i < RowTile::kRows; ++i) std::copy_n(row, width, rows + i * width);
}

/// Rows of packed V that add the probabilities of `count` leading keys.
void write_ones_rows(int count, int ones_rows, std::uint8_t* rows) {
  std::uint8_t row[numerics::kKeyBlock] = {};
  for (int key = 0; key < count; ++key) row[numerics::slot_of_key(key)] = numerics::kE4m3One;
  for (int i = 0; i < ones_rows; ++i) {
    std::copy_n(row, numerics::kKeyBlock, rows + i * numerics::kKeyBlock);
  }
}

/// Residual columns of V, a row each, of `count` keys.
void write_value_columns(const float* residuals, int count, std::uint8_t* rows) {
  for (int key = 0; key < count; ++key) {
    for (int i = 0; i < numerics::kValueColumns; ++i) {
      rows[i * numerics::kKeyBlock + numerics::slot_of_key(key)] =
          numerics::e4m3_encode(residuals[key * kHeadDim + i]);
    }
  }
}

void write_spare_residuals(int head_dim, int count, RowTile& tile) {
  for (int i = 0; i < count; ++i) {
    const float* residuals = tile.residuals + i * kHeadDim;
    std::uint8_t* spare = tile.codes + i * kHeadDim + schedule::kSpareDistance;
    for (int c = 0; c < schedule::kSpareDistance; ++c) {
      if (schedule::has_spare_residual(c, head_dim)) spare[c] = numerics::e4m3_encode(residuals[c]);
    }
  }
}

float scaled_shift(const float* query, const numerics::HeadPlan& plan) {
  float row[kHeadDim];
  float means[kHeadDim];
  for (int c = 0; c < kHeadDim; ++c) {
    row[c] = query[c] * plan.scores.query_multiplier;
    means[c] = plan.key_means[c] * plan.scores.key_multiplier;
  }
  return numerics::scaled_smoothing_shift(row_dot(row, means), plan.scores.shift_unit);
}

/// Codes and residual columns of one loaded tile, without its padding. `columns(step)` is where the
/// step's rows go.
template <class Columns>
void write_score_rows(const RowTile& tile, int count, float multiplier,
                      const numerics::HeadPlan& plan, const ColumnPlaces& places,
                      int max_extra_steps, std::uint8_t* codes, const Columns& columns) {
  float multipliers[kHeadDim];
  std::fill_n(multipliers, kHeadDim, multiplier);
  encode_rows(tile.rows, count, multipliers, codes);
  for (int step = 0; step < max_extra_steps; ++step) {
    std::uint8_t* rows = columns(step);
    if (step >= plan.scores.extra_steps) {
      clear_padding(rows, 0, kColumnsPerStep);
      continue;
    }
    for (int i = 0; i < count; ++i) {
      write_column_row(tile.rows + i * kHeadDim, multiplier,
                       plan.residual_channels + step * kResidualChannelsPerStep, places,
                       rows + i * kColumnsPerStep);
    }
  }
}

}  // namespace

BlockWriter::BlockWriter(const schedule::PrepareRequest& request, std::span<const HeadBases> bases,
                         std::byte* block)
    : request_(request),
      bases_(bases),
      layout_(schedule::prepared_layout(request)),
      block_(block) {}

void BlockWriter::load_queries(std::int64_t head, std::int64_t first, int count,
                               RowTile& tile) const {
  const std::int64_t heads = request_.problem.heads;
  tile.load(request_.q, head / heads, head % heads, first, count);
}

void BlockWriter::load_keys(const TensorView& tensor, std::int64_t head, std::int64_t first,
                            int count, RowTile& tile) const {
  const schedule::Problem& problem = request_.problem;
  tile.load(tensor, head / problem.heads, problem.key_head(head % problem.heads), first, count);
}

void BlockWriter::write_head(std::int64_t head, const numerics::HeadPlan& plan) const {
  const numerics::HeadRule rule = plan.rule();
  std::memcpy(block_ + layout_.head_rule_at(head), &rule, sizeof(rule));
  std::copy_n(plan.value_scales, kHeadDim, floats(layout_.value_scales_at(head)));
  std::copy_n(plan.value_means, kHeadDim, floats(layout_.value_means_at(head)));
  write_value_basis(head);
}

void BlockWriter::write_value_basis(std::int64_t head) const {
  if (!schedule::with_value_axes(request_)) return;
  auto* packed = reinterpret_cast<std::uint16_t*>(block_ + layout_.value_basis_at(head));
  const HeadBasis& basis = bases(head).values;
  const int columns = layout_.basis_columns();
  std::fill_n(packed, kHeadDim * columns, std::uint16_t{0});
  if (basis.empty()) return;
  for (int c = 0; c < kHeadDim; ++c) {
    for (int j = 0; j < kHeadDim; ++j) {
      const auto terms = numerics::basis_terms(basis[static_cast<std::size_t>(c * kHeadDim + j)]);
      packed[c * columns + j] = terms.high;
      if (j < numerics::kValueAxes) packed[c * columns + kHeadDim + j] = terms.low;
    }
  }
}

void BlockWriter::write_smoothing_shifts(std::int64_t head, std::int64_t first, int count,
                                         const numerics::HeadPlan& plan,
                                         const RowTile& tile) const {
  float* shifts = floats(layout_.smoothing_shift_at(head, first));
  for (int i = 0; i < count; ++i) {
    const float* row = tile.rows + i * kHeadDim;
    const float dot = row_dot(row, plan.key_means);
    shifts[i] = numerics::needs_scaled_shift(dot, plan.scores.excess_exponent)
                    ? scaled_shift(row, plan)
                    : numerics::smoothing_shift(request_.softmax_scale, dot);
  }
}

void BlockWriter::write_queries(std::int64_t head, std::int64_t query_tile,
                                const numerics::HeadPlan& plan, RowTile& tile) const {
  const schedule::Problem& problem = request_.problem;
  const std::int64_t first = query_tile * RowTile::kRows;
  const int count = rows_in_tile(problem.queries, query_tile);
  load_queries(head, first, count, tile);
  if (request_.with_log_sum_exp) write_smoothing_shifts(head, first, count, plan, tile);
  if (plan.scores.rotated != 0) rotate_rows(tile.rows, count, numerics::kQueryRotationScale);
  if (plan.scores.axes != 0) multiply_rows(tile.rows, count, bases(head).scores.data());
  std::uint8_t* codes = bytes(layout_.query_at(head, first));
  const auto columns = [&](int step) { return bytes(layout_.query_columns_at(step, head, first)); };
  write_score_rows(tile, count, plan.scores.query_multiplier, plan, kQueryPlaces,
                   request_.numerics.max_extra_steps, codes, columns);
  clear_padding(codes, count, kHeadDim);
  for (int step = 0; step < request_.numerics.max_extra_steps; ++step) {
    clear_padding(columns(step), count, kColumnsPerStep);
  }
}

void BlockWriter::pad_keys(std::int64_t head, std::int64_t key_block, int count) const {
  const std::int64_t first = key_block * numerics::kKeyBlock;
  const std::int64_t last = first + count - 1;
  repeat_in_padding(bytes(layout_.key_at(head, last)), bytes(layout_.key_at(head, first)), count,
                    kHeadDim);
  for (int step = 0; step < request_.numerics.max_extra_steps; ++step) {
    repeat_in_padding(bytes(layout_.key_columns_at(step, head, last)),
                      bytes(layout_.key_columns_at(step, head, first)), count, kColumnsPerStep);
  }
}

void BlockWriter::write_keys(std::int64_t head, std::int64_t key_block,
                             const numerics::HeadPlan& plan, RowTile& tile) const {
  const std::int64_t first = key_block * numerics::kKeyBlock;
  const int count = rows_in_tile(request_.problem.keys, key_block);
  load_keys(request_.k, head, first, count, tile);
  subtract_from_rows(tile.rows, count, plan.key_means);
  if (plan.scores.rotated != 0) rotate_rows(tile.rows, count, numerics::kKeyRotationScale);
  if (plan.scores.axes != 0) multiply_rows(tile.rows, count, bases(head).scores.data());
  write_score_rows(tile, count, plan.scores.key_multiplier, plan, kKeyPlaces,
                   request_.numerics.max_extra_steps, bytes(layout_.key_at(head, first)),
                   [&](int step) { return bytes(layout_.key_columns_at(step, head, first)); });
  pad_keys(head, key_block, count);
}

void BlockWriter::quantize_values(std::int64_t head, const numerics::HeadPlan& plan, int count,
                                  bool with_residuals, RowTile& tile) const {
  subtract_from_rows(tile.rows, count, plan.value_means);
  if (plan.values_on_axes != 0) multiply_rows(tile.rows, count, bases(head).values.data());
  encode_rows(tile.rows, count, plan.value_multipliers, tile.codes);
  const bool spare = schedule::with_spare_residuals(request_);
  if (!with_residuals && !spare && plan.values_on_axes == 0) return;
  residual_rows(tile.rows, count, plan.value_multipliers, tile.codes, tile.residuals);
  if (spare) write_spare_residuals(request_.problem.head_dim, count, tile);
}

void BlockWriter::write_value_block(std::int64_t head, std::int64_t block, int count, int counted,
                                    RowTile& tile) const {
  clear_padding(tile.codes, count, kHeadDim);
  std::uint8_t* packed = bytes(layout_.value_block_at(head, block));
  pack_value_codes(tile.codes, packed);
  std::fill_n(packed + kHeadDim * numerics::kKeyBlock,
              numerics::kValueColumns * numerics::kKeyBlock, std::uint8_t{0});
  write_ones_rows(counted, layout_.format.ones_rows,
                  packed + layout_.ones_row() * numerics::kKeyBlock);
}

void BlockWriter::write_values(std::int64_t head, std::int64_t key_block,
                               const numerics::HeadPlan& plan, RowTile& tile,
                               float* energies) const {
  const int count = rows_in_tile(request_.problem.keys, key_block);
  load_keys(request_.v, head, key_block * numerics::kKeyBlock, count, tile);
  quantize_values(head, plan, count, energies != nullptr, tile);
  write_value_block(head, key_block, count, count, tile);
  if (plan.values_on_axes != 0) {
    std::uint8_t* packed = bytes(layout_.value_block_at(head, key_block));
    write_value_columns(tile.residuals, count, packed + kHeadDim * numerics::kKeyBlock);
  }
  if (energies == nullptr) return;
  weighted_row_energies(tile.residuals, count, plan.value_scales, energies);
}

void BlockWriter::write_repair_block(std::int64_t head, std::int64_t repair_block,
                                     const std::int64_t* tokens, int count,
                                     const numerics::HeadPlan& plan, RowTile& tile) const {
  const schedule::Problem& problem = request_.problem;
  const std::int64_t block = problem.key_blocks() + repair_block;
  const std::int64_t first = block * numerics::kKeyBlock;
  std::uint8_t* keys = bytes(layout_.key_at(head, first));
  for (int i = 0; i < count; ++i) {
    std::copy_n(bytes(layout_.key_at(head, tokens[i])), kHeadDim, keys + i * kHeadDim);
    load_padded_row(request_.v, head / problem.heads, tokens[i],
                    problem.key_head(head % problem.heads), tile.rows + i * kHeadDim);
  }
  for (int step = 0; step < request_.numerics.max_extra_steps; ++step) {
    std::uint8_t* columns = bytes(layout_.key_columns_at(step, head, first));
    for (int i = 0; i < count; ++i) {
      std::copy_n(bytes(layout_.key_columns_at(step, head, tokens[i])), kColumnsPerStep,
                  columns + i * kColumnsPerStep);
    }
  }
  pad_keys(head, block, count);
  quantize_values(head, plan, count, true, tile);
  float ones[kHeadDim];
  std::fill_n(ones, kHeadDim, 1.0f);
  encode_rows(tile.residuals, count, ones, tile.codes);
  write_value_block(head, block, count, 0, tile);
}

}  // namespace openvc::cpu
