// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/device/exp_cast.cuh"
#include "cuda/ptx/f16x2.cuh"
#include "cuda/ptx/prmt.cuh"
#include "numerics/contract.hpp"
#include "numerics/head_rule.hpp"
#include "numerics/key_permutation.hpp"

// From a score fragment to a probability fragment, where warps hold them in registers. A test
// compares row state and codes with numerics/online_softmax.hpp byte by byte.
//
// An accumulator of binary16 of wgmma m64n128, or of sixteen mma m16n8: a warp holds 16 rows, lane
// l the rows g = l / 4 and g + 8, of every 8 columns the two at 2t, where t = l % 4 is its place in
// the quad. Two columns a register; registers 4i .. 4i + 3 cover the columns 16i .. 16i + 15:
//
//   column 16i +      0 1   2 3   4 5   6 7  |  8 9  10 11  12 13  14 15
//   thread t          0     1     2     3    |  0     1      2      3
//   row g             scores[4i]             |  scores[4i + 2]
//   row g + 8         scores[4i + 1]         |  scores[4i + 3]
//
// The A operand of the next product, 16 rows and k32 of bytes, wants four consecutive columns a
// register, at 4t. Packed V has its keys permuted in groups of 16 (numerics/key_permutation.hpp),
// so that these are the four codes which the thread has made:
//
//   slot 16i +        0 1 2 3    4 5 6 7    8 9 10 11    12 13 14 15
//   thread t          0          1          2            3
//   key 16i +         0 1 8 9    2 3 10 11  4 5 12 13    6 7 14 15
//   row g             probabilities[2i]      codes of scores[4i], scores[4i + 2]
//   row g + 8         probabilities[2i + 1]  codes of scores[4i + 1], scores[4i + 3]
namespace openvc::cuda {

inline constexpr int kScoreRegisters = numerics::kKeyBlock / 4;
inline constexpr int kProbabilityRegisters = numerics::kKeyBlock / 8;
inline constexpr int kFragmentGroups = numerics::kKeyBlock / numerics::kKeyGroup;

using Scores = std::uint32_t[kScoreRegisters];
using Probabilities = std::uint32_t[kProbabilityRegisters];

/// Maxima of the block for both rows of the thread over the quad, at least kLeastTops. The
/// assembler joins neighbouring maxima into three-operand instructions. NaN is ignored.
__device__ __forceinline__ std::uint32_t block_tops(const Scores& scores) {
  std::uint32_t low = ptx::max_f16x2(scores[0], scores[2]);
  std::uint32_t high = ptx::max_f16x2(scores[1], scores[3]);
#pragma unroll
  for (int i = 4; i < kScoreRegisters; i += 4) {
    low = ptx::max_f16x2(ptx::max_f16x2(low, scores[i]), scores[i + 2]);
    high = ptx::max_f16x2(ptx::max_f16x2(high, scores[i + 1]), scores[i + 3]);
  }
  std::uint32_t both = ptx::max_f16x2(ptx::prmt<0x5410>(low, high), ptx::prmt<0x7632>(low, high));
  both = ptx::max_f16x2(both, kLeastTops);
  both = ptx::max_f16x2(both, __shfl_xor_sync(0xFFFF'FFFFu, both, 1));
  return ptx::max_f16x2(both, __shfl_xor_sync(0xFFFF'FFFFu, both, 2));
}

/// Begins a block for the two rows of the thread. In wide heads the references move to the largest
/// score seen so far: where that is new for any row of the warp, rescale(row_scale) is called; a
/// row whose reference stays is scaled by 1. The vote keeps the instructions of rare maxima out of
/// most tiles.
template <ExpCastPath kPath, class Rescale>
__device__ __forceinline__ void begin_block(BlockPair& block, RowPair& rows, const Scores& scores,
                                            const numerics::HeadRule& head,
                                            const Rescale& rescale) {
  const std::uint32_t tops = block_tops(scores);
  if constexpr (kPath == ExpCastPath::narrow) {
    block.begin_narrow(tops);
  } else {
    const std::uint32_t reference = ptx::max_f16x2(rows.reference, tops);
    if (__any_sync(0xFFFF'FFFFu, reference != rows.reference)) {
      rescale(BlockPair::wide_weight(rows.reference, reference, head));
      rows.reference = reference;
    }
    block.begin_wide(tops, rows, head);
  }
}

/// Multiplies a binary32 accumulator fragment: of every four registers, two belong to each row.
template <int kCount>
__device__ __forceinline__ void scale_rows(float (&accumulator)[kCount], const RowScale& scale) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) accumulator[i] *= i % 4 < 2 ? scale.low : scale.high;
}

/// Codes of a whole fragment.
template <ExpCastPath kPath>
__device__ __forceinline__ void exp_cast(const Scores& scores, Probabilities& probabilities,
                                         std::uint32_t tops, const numerics::HeadRule& head) {
  const std::uint32_t offset = block_offset<kPath>(tops);
  const std::uint32_t low = ptx::prmt<0x1010>(offset, offset);
  const std::uint32_t high = ptx::prmt<0x3232>(offset, offset);
  const std::uint32_t scale = kPath == ExpCastPath::wide ? wide_scale(head) : kOneCode;
#pragma unroll
  for (int i = 0; i < kFragmentGroups; ++i) {
    const std::uint32_t a = exp_cast_pair<kPath>(scores[4 * i], low, scale);
    const std::uint32_t b = exp_cast_pair<kPath>(scores[4 * i + 1], high, scale);
    const std::uint32_t c = exp_cast_pair<kPath>(scores[4 * i + 2], low, scale);
    const std::uint32_t d = exp_cast_pair<kPath>(scores[4 * i + 3], high, scale);
    probabilities[2 * i] = ptx::prmt<0x6420>(a, c);
    probabilities[2 * i + 1] = ptx::prmt<0x6420>(b, d);
  }
}

/// Replaces the scores of keys at or beyond a limit (counted from the block's first key) by -inf.
/// By selection, never by addition: whatever a padded key holds does not matter.
__device__ __forceinline__ void mask_scores(Scores& scores, int low_limit, int high_limit) {
  const int column = 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
  for (int i = 0; i < kScoreRegisters; ++i) {
    const int first = column + 16 * (i / 4) + 8 * ((i % 4) / 2);
    const int limit = i % 2 == 0 ? low_limit : high_limit;
    const std::uint32_t visible =
        (first < limit ? 0x0000'FFFFu : 0u) | (first + 1 < limit ? 0xFFFF'0000u : 0u);
    scores[i] = (scores[i] & visible) | (kMinusInfinities & ~visible);
  }
}

}  // namespace openvc::cuda
