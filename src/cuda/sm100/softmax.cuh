// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/device/exp_cast.cuh"
#include "cuda/ptx/f16x2.cuh"
#include "cuda/ptx/prmt.cuh"
#include "cuda/sm100/config.hpp"
#include "numerics/contract.hpp"
#include "numerics/head_rule.hpp"
#include "numerics/key_permutation.hpp"

// From the scores of a row to its probabilities. A thread has a whole row: two neighbouring keys a
// register, and four probabilities a register in the order of packed V's slots
// (numerics/key_permutation.hpp):
//
//   slot 16i +                    0 1 2 3    4 5 6 7    8 9 10 11   12 13 14 15
//   key 16i +                     0 1 8 9    2 3 10 11  4 5 12 13    6 7 14 15
//   probabilities[4i + t]         t = 0      1          2            3
//     codes of scores[8i + t] and scores[8i + t + 4]
namespace openvc::cuda::sm100 {

inline constexpr int kScoreRegisters = numerics::kKeyBlock / 2;
inline constexpr int kProbabilityRegisters = numerics::kKeyBlock / 4;

using Scores = std::uint32_t[kScoreRegisters];
using Probabilities = std::uint32_t[kProbabilityRegisters / tensor_memory::kProbabilityParts];

/// The largest score of the row, at least kLeastTops, in both halves. NaN is ignored.
__device__ __forceinline__ std::uint32_t block_top(const Scores& scores) {
  constexpr int kChains = 4;  // of maxima that do not wait for each other
  std::uint32_t top[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) top[i] = ptx::max_f16x2(scores[i], scores[i + kChains]);
#pragma unroll
  for (int i = 2 * kChains; i < kScoreRegisters; i += 2 * kChains) {
#pragma unroll
    for (int j = 0; j < kChains; ++j) {
      top[j] = ptx::max_f16x2(ptx::max_f16x2(top[j], scores[i + j]), scores[i + j + kChains]);
    }
  }
  const std::uint32_t both =
      ptx::max_f16x2(ptx::max_f16x2(top[0], top[1]), ptx::max_f16x2(top[2], top[3]));
  return ptx::max_f16x2(ptx::max_f16x2(both, ptx::prmt<0x1032>(both, both)), kLeastTops);
}

/// Codes of a part of a row.
template <ExpCastPath kPath, int kPart>
__device__ __forceinline__ void exp_cast(const Scores& scores, Probabilities& probabilities,
                                         std::uint32_t top, const numerics::HeadRule& head) {
  constexpr int kGroupScores = numerics::kKeyGroup / 2;
  constexpr int kGroupRegisters = numerics::kKeyGroup / 4;
  constexpr int kGroups =
      numerics::kKeyBlock / numerics::kKeyGroup / tensor_memory::kProbabilityParts;
  const std::uint32_t offset = block_offset<kPath>(top);
  const std::uint32_t scale = kPath == ExpCastPath::wide ? wide_scale(head) : kOneCode;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int i = 0; i < kGroupRegisters; ++i) {
      const int first = (kPart * kGroups + group) * kGroupScores + i;
      const std::uint32_t a = exp_cast_pair<kPath>(scores[first], offset, scale);
      const std::uint32_t b = exp_cast_pair<kPath>(scores[first + kGroupRegisters], offset, scale);
      probabilities[group * kGroupRegisters + i] = ptx::prmt<0x6420>(a, b);
    }
  }
}

/// Replaces the scores of keys at or beyond a limit (counted from the block's first key) by -inf.
/// By selection, never by addition: whatever a padded key holds does not matter.
__device__ __forceinline__ void mask_scores(Scores& scores, int limit) {
#pragma unroll
  for (int i = 0; i < kScoreRegisters; ++i) {
    const std::uint32_t visible =
        (2 * i < limit ? 0x0000'FFFFu : 0u) | (2 * i + 1 < limit ? 0xFFFF'0000u : 0u);
    scores[i] = (scores[i] & visible) | (kMinusInfinities & ~visible);
  }
}

}  // namespace openvc::cuda::sm100
