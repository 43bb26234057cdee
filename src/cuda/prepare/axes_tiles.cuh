// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/prepare/arguments.cuh"
#include "cuda/prepare/row_chunk.cuh"

// The tiles of tensors that are on principal axes, in the order of the heads: those of Q, of K and
// of V. Only the plans, which are on the device, tell which tensors these are.
namespace openvc::cuda::prepare {

enum class Tensor : int { query, key, value };
inline constexpr int kTensors = 3;

[[nodiscard]] OPENVC_HD constexpr HeadPart part_of(Tensor tensor) {
  return tensor == Tensor::value ? kValues : kScores;
}

/// Whether a part of a head is on axes.
__device__ __forceinline__ bool is_on_axes(const Arguments& a, std::int64_t bh, int part) {
  if (part == kScores) return a.workspace_layout.with_axes && a.plan(bh).scores.axes != 0;
  return a.workspace_layout.with_value_axes && a.plan(bh).values_on_axes != 0;
}

/// A place among the tiles. All threads of a block have the same one.
struct AxesTile {
  std::int64_t bh = 0;
  Tensor tensor = Tensor::query;
  std::int64_t tile = 0;
};

/// A block's share of the tiles: as many as the others have.
class AxesTiles {
 public:
  /// All warps of the block, which do the same.
  __device__ explicit AxesTiles(const Arguments& a)
      : a_(a),
        heads_(a.problem.batch_heads()),
        query_tiles_(a.block_layout.query_rows / kTileRows),
        key_tiles_(a.workspace_layout.key_tiles) {
    std::int64_t all = 0;
    for (std::int64_t bh = 0; bh < heads_; bh += kWarp) all += tiles_of(flags(bh));
    const std::int64_t first = all * blockIdx.x / gridDim.x;
    count_ = all * (blockIdx.x + 1) / gridDim.x - first;
    if (count_ > 0) seek(first);
  }

  [[nodiscard]] __device__ std::int64_t count() const { return count_; }
  [[nodiscard]] __device__ const AxesTile& current() const { return tile_; }

  /// The tile behind the current one, which is not the last of all.
  __device__ __forceinline__ void advance() {
    if (++tile_.tile < (tile_.tensor == Tensor::query ? query_tiles_ : key_tiles_)) return;
    tile_.tile = 0;
    do {
      const int next = static_cast<int>(tile_.tensor) + 1;
      tile_.tensor = static_cast<Tensor>(next % kTensors);
      if (next == kTensors) ++tile_.bh;
    } while (tile_.bh < heads_ && !is_on_axes(a_, tile_.bh, part_of(tile_.tensor)));
  }

 private:
  /// Of the heads from one on, a bit each.
  struct Flags {
    unsigned scores;
    unsigned values;
  };

  [[nodiscard]] __device__ Flags flags(std::int64_t first) const {
    const std::int64_t bh = first + threadIdx.x % kWarp;
    const bool exists = bh < heads_;
    return {__ballot_sync(kAllLanes, exists && is_on_axes(a_, bh, kScores)),
            __ballot_sync(kAllLanes, exists && is_on_axes(a_, bh, kValues))};
  }

  [[nodiscard]] __device__ std::int64_t tiles_of(const Flags& flags) const {
    return __popc(flags.scores) * (query_tiles_ + key_tiles_) + __popc(flags.values) * key_tiles_;
  }

  /// Goes to a tile by its number among those on axes.
  __device__ void seek(std::int64_t left) {
    std::int64_t bh = 0;
    Flags group = flags(bh);
    while (left >= tiles_of(group)) {
      left -= tiles_of(group);
      bh += kWarp;
      group = flags(bh);
    }
    for (;; ++bh, group.scores >>= 1, group.values >>= 1) {
      const Flags head{group.scores & 1u, group.values & 1u};
      if (left >= tiles_of(head)) {
        left -= tiles_of(head);
        continue;
      }
      tile_ = {bh, Tensor::query, left};
      const std::int64_t of_scores = head.scores != 0 ? query_tiles_ + key_tiles_ : 0;
      if (left >= of_scores) {
        tile_ = {bh, Tensor::value, left - of_scores};
      } else if (left >= query_tiles_) {
        tile_ = {bh, Tensor::key, left - query_tiles_};
      }
      return;
    }
  }

  const Arguments& a_;
  std::int64_t heads_;
  std::int64_t query_tiles_;
  std::int64_t key_tiles_;
  std::int64_t count_ = 0;
  AxesTile tile_;
};

}  // namespace openvc::cuda::prepare
