// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/prepare.hpp"
#include "cpu/row_tile.hpp"
#include "numerics/plan.hpp"
#include "numerics/v_quantize.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cpu {

/// Everything that the quantisation of a head needs besides its elements.
struct HeadRecipe {
  numerics::ScorePlan scores;
  bool tail_correction = false;
  std::array<float, numerics::kHeadDim> value_means{};
  std::array<float, numerics::kHeadDim> value_scales{};
  std::array<float, numerics::kHeadDim> value_multipliers{};
};

/// Writes the sections of prepared inputs, tile by tile of RowTile::kRows rows. `head` counts over
/// batch * heads. Every byte of a section belongs to exactly one call, padding included.
class BlockWriter {
 public:
  BlockWriter(const schedule::PrepareRequest& request, const schedule::PreparedLayout& layout,
              std::byte* block);

  void write_head(std::int64_t head, const HeadRecipe& recipe) const;
  void write_queries(std::int64_t head, std::int64_t query_tile, const HeadRecipe& recipe,
                     RowTile& tile) const;
  void write_keys(std::int64_t head, std::int64_t key_block, const HeadRecipe& recipe,
                  RowTile& tile) const;
  /// `energies` is null or takes the energy of what rounding left of each token of the block.
  void write_values(std::int64_t head, std::int64_t key_block, const HeadRecipe& recipe,
                    RowTile& tile, float* energies) const;
  /// Extra rows that hold the residuals of the tokens [tokens, tokens + count), count <= kKeyBlock.
  void write_repair_block(std::int64_t head, std::int64_t repair_block, const std::int64_t* tokens,
                          int count, const HeadRecipe& recipe, RowTile& tile) const;

 private:
  [[nodiscard]] std::uint8_t* bytes(std::size_t offset) const {
    return reinterpret_cast<std::uint8_t*>(block_) + offset;
  }
  [[nodiscard]] float* floats(std::size_t offset) const {
    return reinterpret_cast<float*>(block_ + offset);
  }
  [[nodiscard]] std::uint8_t* key_row(std::int64_t head, std::int64_t row) const;
  [[nodiscard]] std::uint8_t* key_columns(int step, std::int64_t head, std::int64_t row) const;
  [[nodiscard]] std::uint8_t* value_block(std::int64_t head, std::int64_t block) const;
  /// The tile's codes and `weights` leading slots that count in the denominator. Padding of the
  /// tile becomes zero.
  void write_value_block(std::int64_t head, std::int64_t block, int count, int weights,
                         RowTile& tile) const;
  /// Key rows of a block beyond its `count` leading ones, residual columns included.
  void pad_keys(std::int64_t head, std::int64_t key_block, int count) const;
  void load(const TensorView& tensor, std::int64_t head, std::int64_t first, int count,
            RowTile& tile) const;
  void write_smoothing_shifts(std::int64_t head, std::int64_t first, int count,
                              const HeadRecipe& recipe, const RowTile& tile) const;
  void quantize_values(const HeadRecipe& recipe, int count, RowTile& tile) const;

  const schedule::PrepareRequest& request_;
  schedule::PreparedLayout layout_;
  std::byte* block_;
};

}  // namespace openvc::cpu
