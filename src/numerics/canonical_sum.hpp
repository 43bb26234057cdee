// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"

// The order in which statistics are summed. Floating-point sums depend on their order, and scales,
// means and plans derive from them; one fixed tree makes those equal on every backend, whatever the
// number of threads.
namespace openvc::numerics {

/// Values that one level of the tree reduces to one.
inline constexpr int kReductionGroup = kContract.reduction_group;

/// Partial sums of a group: value i goes to lane i mod 16, in ascending order; the lanes are then
/// added as a balanced binary tree. It is what a CUDA block does that reads 16 rows at a time.
inline constexpr int kReductionLanes = kContract.reduction_lanes;

/// Channels that one owner adds in ascending order before the balanced tree over owners.
inline constexpr int kRowChunk = kContract.row_chunk;

/// Adds lanes[0..count) as a balanced binary tree; count is a power of two. Destroys `lanes`.
OPENVC_HD constexpr float sum_balanced(float* lanes, int count) {
  for (int stride = 1; stride < count; stride *= 2) {
    for (int i = 0; i < count; i += 2 * stride) lanes[i] = lanes[i] + lanes[i + stride];
  }
  return lanes[0];
}

/// One group: `value(i)` for 0 <= i < count <= kReductionGroup.
template <class Value>
OPENVC_HD constexpr float sum_group(int count, const Value& value) {
  float lanes[kReductionLanes] = {};
  for (int i = 0; i < count; ++i) {
    lanes[i % kReductionLanes] = lanes[i % kReductionLanes] + value(i);
  }
  return sum_balanced(lanes, kReductionLanes);
}

/// One group of squares, each added with one rounding. Levels above are plain sums.
template <class Value>
OPENVC_HD constexpr float sum_squares_group(int count, const Value& value) {
  float lanes[kReductionLanes] = {};
  for (int i = 0; i < count; ++i) {
    const float x = value(i);
    lanes[i % kReductionLanes] = __builtin_fmaf(x, x, lanes[i % kReductionLanes]);
  }
  return sum_balanced(lanes, kReductionLanes);
}

/// Reduces `count` values in place, level by level, and returns the total. 1 <= count.
/// `at(i)` is a reference to value i.
template <class At>
OPENVC_HD constexpr float sum_tree(std::int64_t count, const At& at) {
  while (count > 1) {
    const std::int64_t groups = ceil_div(count, kReductionGroup);
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t first = g * kReductionGroup;
      const auto size =
          static_cast<int>(count - first < kReductionGroup ? count - first : kReductionGroup);
      at(g) = sum_group(size, [&](int i) { return at(first + i); });
    }
    count = groups;
  }
  return at(0);
}

/// Dot product of two rows of kDim channels.
template <int kDim = kHeadDim, class Left, class Right>
OPENVC_HD constexpr float row_dot(const Left& left, const Right& right) {
  constexpr int kChunks = kDim / kRowChunk;
  float chunks[kChunks] = {};
  for (int c = 0; c < kDim; ++c) {
    chunks[c / kRowChunk] = __builtin_fmaf(left(c), right(c), chunks[c / kRowChunk]);
  }
  return sum_balanced(chunks, kChunks);
}

/// Sum of squares of one row of kDim channels.
template <int kDim = kHeadDim, class Value>
OPENVC_HD constexpr float row_sum_squares(const Value& value) {
  return row_dot<kDim>(value, value);
}

}  // namespace openvc::numerics
