// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/device/exp_cast.cuh"
#include "cuda/ptx/f16x2.cuh"
#include "cuda/ptx/prmt.cuh"
#include "numerics/contract.hpp"
#include "numerics/head_rule.hpp"
#include "numerics/key_permutation.hpp"

// From a score fragment to a probability fragment. A test compares row state and codes with
// numerics/online_softmax.hpp byte by byte.
//
// A wgmma accumulator of binary16, m64n128: a warp holds 16 rows, lane l the rows g = l / 4 and
// g + 8, of every 8 columns the two at 2t, where t = l % 4 is its place in the quad. Two columns a
// register; registers 4i .. 4i + 3 cover the columns 16i .. 16i + 15:
//
//   column 16i +      0 1   2 3   4 5   6 7  |  8 9  10 11  12 13  14 15
//   thread t          0     1     2     3    |  0     1      2      3
//   row g             scores[4i]             |  scores[4i + 2]
//   row g + 8         scores[4i + 1]         |  scores[4i + 3]
//
// The A operand of the next product, m64k32 of bytes, wants four consecutive columns a register, at
// 4t. Packed V has its keys permuted in groups of 16 (numerics/key_permutation.hpp), so that these
// are the four codes which the thread has made:
//
//   slot 16i +        0 1 2 3    4 5 6 7    8 9 10 11    12 13 14 15
//   thread t          0          1          2            3
//   key 16i +         0 1 8 9    2 3 10 11  4 5 12 13    6 7 14 15
//   row g             probabilities[2i]      codes of scores[4i], scores[4i + 2]
//   row g + 8         probabilities[2i + 1]  codes of scores[4i + 1], scores[4i + 3]
namespace openvc::cuda::sm90 {

inline constexpr int kScoreRegisters = numerics::kKeyBlock / 4;
inline constexpr int kProbabilityRegisters = numerics::kKeyBlock / 8;
inline constexpr int kFragmentGroups = numerics::kKeyBlock / numerics::kKeyGroup;

using Scores = std::uint32_t[kScoreRegisters];
using Probabilities = std::uint32_t[kProbabilityRegisters];

/// Maximum of the block and the running maximum, for both rows of the thread, over the quad. The
/// assembler joins neighbouring maxima into three-operand instructions. NaN is ignored.
__device__ __forceinline__ std::uint32_t block_max(const Scores& scores, std::uint32_t row_max) {
  std::uint32_t low = ptx::max_f16x2(scores[0], scores[2]);
  std::uint32_t high = ptx::max_f16x2(scores[1], scores[3]);
#pragma unroll
  for (int i = 4; i < kScoreRegisters; i += 4) {
    low = ptx::max_f16x2(ptx::max_f16x2(low, scores[i]), scores[i + 2]);
    high = ptx::max_f16x2(ptx::max_f16x2(high, scores[i + 1]), scores[i + 3]);
  }
  std::uint32_t both = ptx::max_f16x2(ptx::prmt<0x5410>(low, high), ptx::prmt<0x7632>(low, high));
  both = ptx::max_f16x2(both, row_max);
  both = ptx::max_f16x2(both, __shfl_xor_sync(0xFFFF'FFFFu, both, 1));
  return ptx::max_f16x2(both, __shfl_xor_sync(0xFFFF'FFFFu, both, 2));
}

/// Moves the rows to the maximum of the block, if it is higher for any row of the warp: then calls
/// rescale(row_scale). The vote keeps the instructions of rare maxima out of most tiles; a row
/// whose maximum stays is scaled by 1.
template <class Rescale>
__device__ __forceinline__ void raise_rows(RowPair& rows, const Scores& scores,
                                           const numerics::HeadRule& head, const Rescale& rescale) {
  const std::uint32_t new_max = block_max(scores, rows.row_max);
  if (__any_sync(0xFFFF'FFFFu, new_max != rows.row_max)) {
    rescale(rows.raise(new_max, ExpCastRule(head)));
  }
}

/// Multiplies a binary32 accumulator fragment: of every four registers, two belong to each row.
template <int kCount>
__device__ __forceinline__ void scale_rows(float (&accumulator)[kCount], const RowScale& scale) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) accumulator[i] *= i % 4 < 2 ? scale.low : scale.high;
}

template <ExpCastForm kForm>
__device__ __forceinline__ void exp_cast(const Scores& scores, Probabilities& probabilities,
                                         std::uint32_t row_offset, const ExpCastRule& rule) {
  const std::uint32_t low = ptx::prmt<0x1010>(row_offset, row_offset);
  const std::uint32_t high = ptx::prmt<0x3232>(row_offset, row_offset);
#pragma unroll
  for (int i = 0; i < kFragmentGroups; ++i) {
    const std::uint32_t a = exp_cast<kForm>(scores[4 * i], low, rule);
    const std::uint32_t b = exp_cast<kForm>(scores[4 * i + 1], high, rule);
    const std::uint32_t c = exp_cast<kForm>(scores[4 * i + 2], low, rule);
    const std::uint32_t d = exp_cast<kForm>(scores[4 * i + 3], high, rule);
    probabilities[2 * i] = ptx::prmt<0x6420>(a, c);
    probabilities[2 * i + 1] = ptx::prmt<0x6420>(b, d);
  }
}

/// What a head's main loop is compiled for. Common rules have loops of their own, so that the
/// instructions of the others are not even fetched; the loop of wide heads serves both of theirs.
enum class ExpCastPath { plain, tail, wide };

__device__ inline ExpCastPath exp_cast_path(const numerics::HeadRule& head) {
  if (head.score_exponent > 0) return ExpCastPath::wide;
  return head.tail_correction != 0 ? ExpCastPath::tail : ExpCastPath::plain;
}

/// Codes of a whole fragment relative to the current maxima.
template <ExpCastPath kPath>
__device__ __forceinline__ void exp_cast(const Scores& scores, Probabilities& probabilities,
                                         const RowPair& rows, const numerics::HeadRule& head) {
  const ExpCastRule rule(head);
  if constexpr (kPath == ExpCastPath::plain) {
    exp_cast<ExpCastForm::plain>(scores, probabilities, rows.row_offset, rule);
  } else if constexpr (kPath == ExpCastPath::tail) {
    exp_cast<ExpCastForm::tail>(scores, probabilities, rows.row_offset, rule);
  } else if (head.tail_correction == 0) {
    exp_cast<ExpCastForm::wide>(scores, probabilities, rows.row_offset, rule);
  } else {
    exp_cast<ExpCastForm::wide_tail>(scores, probabilities, rows.row_offset, rule);
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

}  // namespace openvc::cuda::sm90
