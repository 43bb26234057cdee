// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "cpu/load_row.hpp"
#include "numerics/contract.hpp"
#include "openvc/tensor_view.hpp"

namespace openvc::cpu {

/// Rows of one head as floats, and bytes for their codes: the working memory of one thread.
struct RowTile {
  static constexpr int kRows = 128;
  static_assert(numerics::kQueryBlock % kRows == 0 && numerics::kKeyBlock == kRows);
  static constexpr int kElements = kRows * numerics::kHeadDim;

  alignas(64) float rows[kElements];
  alignas(64) float residuals[kElements];
  alignas(64) std::uint8_t codes[kElements];

  /// Loads the tokens [first, first + count) of a head.
  void load(const TensorView& tensor, std::int64_t batch, std::int64_t head, std::int64_t first,
            int count) {
    for (int i = 0; i < count; ++i) {
      load_padded_row(tensor, batch, first + i, head, rows + i * numerics::kHeadDim);
    }
  }
};

/// One tile per worker, allocated when the worker needs it.
class RowTiles {
 public:
  explicit RowTiles(int workers) : tiles_(static_cast<std::size_t>(workers)) {}

  RowTile& of_worker(int worker) {
    auto& tile = tiles_[static_cast<std::size_t>(worker)];
    if (!tile) tile = std::make_unique_for_overwrite<RowTile>();
    return *tile;
  }

 private:
  std::vector<std::unique_ptr<RowTile>> tiles_;
};

/// Rows of tile `tile` that a sequence of `tokens` fills; 0 for a tile of padding.
inline int rows_in_tile(std::int64_t tokens, std::int64_t tile) {
  return static_cast<int>(
      std::clamp<std::int64_t>(tokens - tile * RowTile::kRows, 0, RowTile::kRows));
}

}  // namespace openvc::cpu
