// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/ptx/half2.cuh"
#include "numerics/contract.hpp"
#include "numerics/exp_cast.hpp"
#include "numerics/key_permutation.hpp"
#include "numerics/online_softmax.hpp"
#include "schedule/prepared_layout.hpp"

// From a score fragment to a probability fragment, in packed binary16. This is the contract of
// numerics/online_softmax.hpp in the instructions of the machine; a test compares them byte by
// byte.
//
// A wgmma accumulator of binary16 gives thread t = lane % 4 of a quad two rows, g and g + 8:
//
//   scores[4i + 0]  row g      columns 16i + 2t, 16i + 2t + 1         (two values a register)
//   scores[4i + 1]  row g + 8  the same columns
//   scores[4i + 2]  row g      columns 16i + 8 + 2t, 16i + 8 + 2t + 1
//   scores[4i + 3]  row g + 8  the same columns
//
// and the A operand of the next product wants, with the keys of V permuted as in
// numerics/key_permutation.hpp,
//
//   probabilities[2i]      row g      the four codes of scores[4i], scores[4i + 2]
//   probabilities[2i + 1]  row g + 8  the four codes of scores[4i + 1], scores[4i + 3]
namespace openvc::cuda::sm90 {

inline constexpr int kScoreRegisters = numerics::kKeyBlock / 4;
inline constexpr int kProbabilityRegisters = numerics::kKeyBlock / 8;
inline constexpr int kFragmentGroups = numerics::kKeyBlock / numerics::kKeyGroup;

using Scores = std::uint32_t[kScoreRegisters];
using Probabilities = std::uint32_t[kProbabilityRegisters];

// Packed binary16 constants; code units are counted in steps of 2^-24 (numerics/exp_cast.hpp).
inline constexpr std::uint32_t kOneCode = 0x0001'0001u;        // 1 code, and the factor 2^-24
inline constexpr std::uint32_t kPeakCodes = 0x007E'007Eu;      // 126 codes
inline constexpr std::uint32_t kTailIntercept = 0x0004'0004u;  // 4 codes
inline constexpr std::uint32_t kTailSlope = 0x3400'3400u;      // 1/4
inline constexpr std::uint32_t kMinusInfinities = 0xFC00'FC00u;
static_assert(kPeakCodes == numerics::kPeakCode * kOneCode);

/// How this head turns scores into codes, in registers.
struct CodeRule {
  std::uint32_t scale;  // 2^(score_exponent - 24), packed
  float units;          // 2^score_exponent
  bool wide;

  __device__ explicit CodeRule(const schedule::HeadRule& head)
      : scale(kOneCode),
        units(numerics::exp2_int(head.score_exponent)),
        wide(head.score_exponent > 0) {
    const auto half = numerics::float_to_half(
        numerics::exp2_int(head.score_exponent + numerics::kHalfGridExponent));
    scale = half * kOneCode;
  }
};

/// State of the two rows that a thread shares with the other three of its quad. Packed values hold
/// row g in the low half and row g + 8 in the high half.
struct RowPair {
  std::uint32_t row_max = kMinusInfinities;  // running maximum, in units of the accumulated scores
  std::uint32_t offset = 0;                  // numerics::row_offset * 2^-24; wide: the maximum

  /// Factors by which everything accumulated before must be multiplied.
  struct Factors {
    float low = 1.0f;
    float high = 1.0f;
  };

  /// Sets the offsets for a new maximum. The contract's raise_row_max for two rows.
  __device__ Factors raise(std::uint32_t new_max, const CodeRule& rule) {
    const float old_low = ptx::low_half(row_max);
    const float old_high = ptx::high_half(row_max);
    const float new_low = ptx::low_half(new_max);
    const float new_high = ptx::high_half(new_max);
    constexpr float kOctavesPerUnit = 1.0f / numerics::kE4m3CodesPerOctave;
    Factors factors;
    if (rule.wide) {
      factors.low = ptx::ex2_approx((old_low - new_low) * rule.units * kOctavesPerUnit);
      factors.high = ptx::ex2_approx((old_high - new_high) * rule.units * kOctavesPerUnit);
      offset = new_max;
    } else {
      constexpr float kGrid = 0x1p-24f;
      constexpr float kOctavesPerGrid = 0x1p24f * kOctavesPerUnit;
      const float peak = numerics::kPeakCode;
      const std::uint32_t raised =
          ptx::cvt_rm_f16x2((peak - ceilf(new_low)) * kGrid, (peak - ceilf(new_high)) * kGrid);
      factors.low =
          ptx::ex2_approx((ptx::low_half(raised) - ptx::low_half(offset)) * kOctavesPerGrid);
      factors.high =
          ptx::ex2_approx((ptx::high_half(raised) - ptx::high_half(offset)) * kOctavesPerGrid);
      offset = raised;
    }
    // A row that had no key yet has accumulated nothing; one that still has none keeps offset 0.
    const float nothing = -numerics::infinity();
    if (old_low == nothing) factors.low = 1.0f;
    if (old_high == nothing) factors.high = 1.0f;
    if (new_low == nothing) offset &= 0xFFFF'0000u;
    if (new_high == nothing) offset &= 0x0000'FFFFu;
    row_max = new_max;
    return factors;
  }

  /// Offset of one row in code units, as the contract keeps it.
  __device__ float code_offset(bool high, const CodeRule& rule) const {
    const float stored = high ? ptx::high_half(offset) : ptx::low_half(offset);
    return rule.wide ? numerics::kPeakCode - stored * rule.units : stored * 0x1p24f;
  }
};

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

/// Codes of two scores, in the low bytes of the two halves.
template <bool kWide, bool kTail>
__device__ __forceinline__ std::uint32_t code_pair(std::uint32_t scores, std::uint32_t offset,
                                                   const CodeRule& rule) {
  std::uint32_t value = scores;
  std::uint32_t scale = kOneCode;
  std::uint32_t bias = offset;
  if constexpr (kWide) {
    value = ptx::sub_f16x2(scores, offset);
    scale = rule.scale;
    bias = kPeakCodes;
  }
  if constexpr (!kTail) {
    return ptx::fma_relu_f16x2(value, scale, bias);
  } else {
    const std::uint32_t code = ptx::fma_f16x2(value, scale, bias);
    return ptx::max_f16x2(code, ptx::fma_relu_f16x2(code, kTailSlope, kTailIntercept));
  }
}

template <bool kWide, bool kTail>
__device__ __forceinline__ void encode(const Scores& scores, Probabilities& probabilities,
                                       std::uint32_t offset, const CodeRule& rule) {
  const std::uint32_t low = ptx::prmt<0x1010>(offset, offset);
  const std::uint32_t high = ptx::prmt<0x3232>(offset, offset);
#pragma unroll
  for (int i = 0; i < kFragmentGroups; ++i) {
    const std::uint32_t a = code_pair<kWide, kTail>(scores[4 * i], low, rule);
    const std::uint32_t b = code_pair<kWide, kTail>(scores[4 * i + 1], high, rule);
    const std::uint32_t c = code_pair<kWide, kTail>(scores[4 * i + 2], low, rule);
    const std::uint32_t d = code_pair<kWide, kTail>(scores[4 * i + 3], high, rule);
    probabilities[2 * i] = ptx::prmt<0x6420>(a, c);
    probabilities[2 * i + 1] = ptx::prmt<0x6420>(b, d);
  }
}

/// Which code a head's scan is compiled for. Common rules have loops of their own, so that the
/// instructions of the others are not even fetched.
enum class CodePath { plain, tail, any };

__device__ inline CodePath code_path(const schedule::HeadRule& head) {
  if (head.score_exponent > 0) return CodePath::any;
  return head.tail_correction != 0 ? CodePath::tail : CodePath::plain;
}

/// Codes of a whole fragment relative to the current maxima.
template <CodePath kPath>
__device__ __forceinline__ void encode(const Scores& scores, Probabilities& probabilities,
                                       const RowPair& rows, const schedule::HeadRule& head) {
  const CodeRule rule(head);
  if constexpr (kPath == CodePath::plain) {
    encode<false, false>(scores, probabilities, rows.offset, rule);
  } else if constexpr (kPath == CodePath::tail) {
    encode<false, true>(scores, probabilities, rows.offset, rule);
  } else if (head.tail_correction == 0) {
    encode<true, false>(scores, probabilities, rows.offset, rule);
  } else {
    encode<true, true>(scores, probabilities, rows.offset, rule);
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
