// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/prepare_quantize.hpp"

#include <algorithm>
#include <cstring>

#include "cpu/load_row.hpp"
#include "cpu/row_kernels.hpp"
#include "numerics/contract.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/hadamard.hpp"
#include "numerics/key_permutation.hpp"
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
void write_weight_rows(int count, std::uint8_t* rows) {
  std::uint8_t row[numerics::kKeyBlock] = {};
  for (int key = 0; key < count; ++key) row[numerics::slot_of_key(key)] = numerics::kE4m3One;
  for (int i = 0; i < schedule::kWeightRows; ++i) {
    std::copy_n(row, numerics::kKeyBlock, rows + i * numerics::kKeyBlock);
  }
}

float scaled_shift(const float* query, const numerics::ScorePlan& plan) {
  float row[kHeadDim];
  float means[kHeadDim];
  for (int c = 0; c < kHeadDim; ++c) {
    row[c] = query[c] * plan.query_multiplier;
    means[c] = plan.key_means[c] * plan.key_multiplier;
  }
  return numerics::scaled_smoothing_shift(row_dot(row, means), plan.shift_unit);
}

/// Codes and residual columns of one loaded tile, without its padding. `columns(step)` is where the
/// step's rows go.
template <class Columns>
void write_score_rows(const RowTile& tile, int count, float multiplier,
                      const numerics::ScorePlan& plan, const ColumnPlaces& places,
                      int max_extra_steps, std::uint8_t* codes, const Columns& columns) {
  float multipliers[kHeadDim];
  std::fill_n(multipliers, kHeadDim, multiplier);
  encode_rows(tile.rows, count, multipliers, codes);
  for (int step = 0; step < max_extra_steps; ++step) {
    std::uint8_t* rows = columns(step);
    if (step >= plan.extra_steps) {
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

BlockWriter::BlockWriter(const schedule::PrepareRequest& request,
                         const schedule::PreparedLayout& layout, std::byte* block)
    : request_(request), layout_(layout), block_(block) {}

std::uint8_t* BlockWriter::key_row(std::int64_t head, std::int64_t row) const {
  return bytes(layout_.key_codes) + (head * request_.problem.padded_keys() + row) * kHeadDim;
}

std::uint8_t* BlockWriter::key_columns(int step, std::int64_t head, std::int64_t row) const {
  const std::int64_t plane = step * request_.problem.batch_heads() + head;
  return bytes(layout_.key_columns) +
         (plane * request_.problem.padded_keys() + row) * kColumnsPerStep;
}

std::uint8_t* BlockWriter::value_block(std::int64_t head, std::int64_t block) const {
  return bytes(layout_.value_codes) + schedule::value_block_offset(request_.problem, head, block);
}

void BlockWriter::load(const TensorView& tensor, std::int64_t head, std::int64_t first, int count,
                       RowTile& tile) const {
  const std::int64_t heads = request_.problem.heads;
  tile.load(tensor, head / heads, head % heads, first, count);
}

void BlockWriter::write_head(std::int64_t head, const HeadRecipe& recipe) const {
  schedule::HeadRule rule;
  rule.score_exponent = static_cast<std::uint8_t>(recipe.scores.score_exponent);
  rule.extra_steps = static_cast<std::uint8_t>(recipe.scores.extra_steps);
  rule.tail_correction = recipe.tail_correction ? 1 : 0;
  rule.excess_exponent = static_cast<std::uint8_t>(recipe.scores.excess_exponent);
  std::memcpy(block_ + layout_.head_rules + static_cast<std::size_t>(head) * sizeof(rule), &rule,
              sizeof(rule));
  std::copy_n(recipe.value_scales.data(), kHeadDim, floats(layout_.value_scales) + head * kHeadDim);
  std::copy_n(recipe.value_means.data(), kHeadDim, floats(layout_.value_means) + head * kHeadDim);
}

void BlockWriter::write_smoothing_shifts(std::int64_t head, std::int64_t first, int count,
                                         const HeadRecipe& recipe, const RowTile& tile) const {
  float* shifts = floats(layout_.smoothing_shifts) + head * request_.problem.queries + first;
  for (int i = 0; i < count; ++i) {
    const float* row = tile.rows + i * kHeadDim;
    const float dot = row_dot(row, recipe.scores.key_means);
    shifts[i] = numerics::needs_scaled_shift(dot, recipe.scores.excess_exponent)
                    ? scaled_shift(row, recipe.scores)
                    : numerics::smoothing_shift(request_.softmax_scale, dot);
  }
}

void BlockWriter::write_queries(std::int64_t head, std::int64_t query_tile,
                                const HeadRecipe& recipe, RowTile& tile) const {
  const schedule::Problem& problem = request_.problem;
  const std::int64_t first = query_tile * RowTile::kRows;
  const int count = rows_in_tile(problem.queries, query_tile);
  load(request_.q, head, first, count, tile);
  if (request_.with_log_sum_exp) write_smoothing_shifts(head, first, count, recipe, tile);
  if (recipe.scores.rotated) rotate_rows(tile.rows, count, numerics::kQueryRotationScale);
  const std::int64_t row = head * problem.padded_queries() + first;
  const std::int64_t plane = problem.batch_heads() * problem.padded_queries();
  std::uint8_t* codes = bytes(layout_.query_codes) + row * kHeadDim;
  const auto columns = [&](int step) {
    return bytes(layout_.query_columns) + (step * plane + row) * kColumnsPerStep;
  };
  write_score_rows(tile, count, recipe.scores.query_multiplier, recipe.scores, kQueryPlaces,
                   request_.numerics.max_extra_steps, codes, columns);
  clear_padding(codes, count, kHeadDim);
  for (int step = 0; step < request_.numerics.max_extra_steps; ++step) {
    clear_padding(columns(step), count, kColumnsPerStep);
  }
}

void BlockWriter::pad_keys(std::int64_t head, std::int64_t key_block, int count) const {
  const std::int64_t first = key_block * numerics::kKeyBlock;
  const std::int64_t last = request_.problem.keys - 1;
  repeat_in_padding(key_row(head, last), key_row(head, first), count, kHeadDim);
  for (int step = 0; step < request_.numerics.max_extra_steps; ++step) {
    repeat_in_padding(key_columns(step, head, last), key_columns(step, head, first), count,
                      kColumnsPerStep);
  }
}

void BlockWriter::write_keys(std::int64_t head, std::int64_t key_block, const HeadRecipe& recipe,
                             RowTile& tile) const {
  const std::int64_t first = key_block * numerics::kKeyBlock;
  const int count = rows_in_tile(request_.problem.keys, key_block);
  load(request_.k, head, first, count, tile);
  subtract_from_rows(tile.rows, count, recipe.scores.key_means);
  if (recipe.scores.rotated) rotate_rows(tile.rows, count, numerics::kKeyRotationScale);
  write_score_rows(tile, count, recipe.scores.key_multiplier, recipe.scores, kKeyPlaces,
                   request_.numerics.max_extra_steps, key_row(head, first),
                   [&](int step) { return key_columns(step, head, first); });
  pad_keys(head, key_block, count);
}

void BlockWriter::quantize_values(const HeadRecipe& recipe, int count, RowTile& tile) const {
  subtract_from_rows(tile.rows, count, recipe.value_means.data());
  encode_rows(tile.rows, count, recipe.value_multipliers.data(), tile.codes);
}

void BlockWriter::write_value_block(std::int64_t head, std::int64_t block, int count, int weights,
                                    RowTile& tile) const {
  clear_padding(tile.codes, count, kHeadDim);
  std::uint8_t* packed = value_block(head, block);
  pack_value_codes(tile.codes, packed);
  write_weight_rows(weights, packed + kHeadDim * numerics::kKeyBlock);
}

void BlockWriter::write_values(std::int64_t head, std::int64_t key_block, const HeadRecipe& recipe,
                               RowTile& tile, float* energies) const {
  const int count = rows_in_tile(request_.problem.keys, key_block);
  load(request_.v, head, key_block * numerics::kKeyBlock, count, tile);
  quantize_values(recipe, count, tile);
  write_value_block(head, key_block, count, count, tile);
  if (energies == nullptr) return;
  residual_rows(tile.rows, count, recipe.value_multipliers.data(), tile.codes, tile.residuals);
  weighted_row_energies(tile.residuals, count, recipe.value_scales.data(), energies);
}

void BlockWriter::write_repair_block(std::int64_t head, std::int64_t repair_block,
                                     const std::int64_t* tokens, int count,
                                     const HeadRecipe& recipe, RowTile& tile) const {
  const schedule::Problem& problem = request_.problem;
  const std::int64_t block = problem.key_blocks() + repair_block;
  const std::int64_t first = block * numerics::kKeyBlock;
  std::uint8_t* keys = key_row(head, first);
  for (int i = 0; i < count; ++i) {
    std::copy_n(key_row(head, tokens[i]), kHeadDim, keys + i * kHeadDim);
    load_row(request_.v, head / problem.heads, tokens[i], head % problem.heads,
             tile.rows + i * kHeadDim);
  }
  for (int step = 0; step < request_.numerics.max_extra_steps; ++step) {
    std::uint8_t* columns = key_columns(step, head, first);
    for (int i = 0; i < count; ++i) {
      std::copy_n(key_columns(step, head, tokens[i]), kColumnsPerStep,
                  columns + i * kColumnsPerStep);
    }
  }
  pad_keys(head, block, count);
  quantize_values(recipe, count, tile);
  residual_rows(tile.rows, count, recipe.value_multipliers.data(), tile.codes, tile.residuals);
  float ones[kHeadDim];
  std::fill_n(ones, kHeadDim, 1.0f);
  encode_rows(tile.residuals, count, ones, tile.codes);
  write_value_block(head, block, count, 0, tile);
}

}  // namespace openvc::cpu
