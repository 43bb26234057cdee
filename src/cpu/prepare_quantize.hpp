// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/head_axes.hpp"
#include "cpu/prepare.hpp"
#include "cpu/row_tile.hpp"
#include "numerics/head_plan.hpp"
#include "schedule/prepared_layout.hpp"

namespace openvc::cpu {

/// Writes the sections of prepared inputs, tile by tile of RowTile::kRows rows. `head` counts over
/// batch * heads. Every byte of a section belongs to exactly one call, padding included.
class BlockWriter {
 public:
  /// `bases`: one per head.
  BlockWriter(const schedule::PrepareRequest& request, std::span<const HeadBases> bases,
              std::byte* block);

  [[nodiscard]] const schedule::PreparedLayout& layout() const { return layout_; }

  void write_head(std::int64_t head, const numerics::HeadPlan& plan) const;
  void write_queries(std::int64_t head, std::int64_t query_tile, const numerics::HeadPlan& plan,
                     RowTile& tile) const;
  void write_keys(std::int64_t head, std::int64_t key_block, const numerics::HeadPlan& plan,
                  RowTile& tile) const;
  /// `energies` is null or takes the energy of what rounding left of each token of the block.
  void write_values(std::int64_t head, std::int64_t key_block, const numerics::HeadPlan& plan,
                    RowTile& tile, float* energies) const;
  /// Extra rows that hold the residuals of the tokens [tokens, tokens + count), count <= kKeyBlock.
  void write_repair_block(std::int64_t head, std::int64_t repair_block, const std::int64_t* tokens,
                          int count, const numerics::HeadPlan& plan, RowTile& tile) const;

 private:
  [[nodiscard]] std::uint8_t* bytes(std::size_t offset) const {
    return reinterpret_cast<std::uint8_t*>(block_) + offset;
  }
  [[nodiscard]] float* floats(std::size_t offset) const {
    return reinterpret_cast<float*>(block_ + offset);
  }
  /// The tile's codes, and ones for the `counted` leading slots, those of the denominator. Padding
  /// of the tile and residual columns become zero.
  void write_value_block(std::int64_t head, std::int64_t block, int count, int counted,
                         RowTile& tile) const;
  /// Key rows of a block beyond its `count` leading ones, residual columns included.
  void pad_keys(std::int64_t head, std::int64_t key_block, int count) const;
  void load_queries(std::int64_t head, std::int64_t first, int count, RowTile& tile) const;
  void load_keys(const TensorView& tensor, std::int64_t head, std::int64_t first, int count,
                 RowTile& tile) const;
  void write_smoothing_shifts(std::int64_t head, std::int64_t first, int count,
                              const numerics::HeadPlan& plan, const RowTile& tile) const;
  /// Codes and, on axes or where `with_residuals`, what they leave of a loaded tile.
  void quantize_values(std::int64_t head, const numerics::HeadPlan& plan, int count,
                       bool with_residuals, RowTile& tile) const;
  void write_value_basis(std::int64_t head) const;

  [[nodiscard]] const HeadBases& bases(std::int64_t head) const {
    return bases_[static_cast<std::size_t>(head)];
  }

  const schedule::PrepareRequest& request_;
  std::span<const HeadBases> bases_;
  schedule::PreparedLayout layout_;
  std::byte* block_;
};

}  // namespace openvc::cpu
