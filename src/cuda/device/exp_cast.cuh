// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/ptx/cvt.cuh"
#include "cuda/ptx/ex2.cuh"
#include "cuda/ptx/f16x2.cuh"
#include "numerics/bits.hpp"
#include "numerics/exp_cast.hpp"
#include "numerics/half.hpp"
#include "numerics/head_rule.hpp"
#include "numerics/online_softmax.hpp"

// Anchored ExpCast in packed binary16, two values a register: the contract of
// numerics/online_softmax.hpp in the instructions of the machine. Which scores a register holds,
// and which threads share a row, is up to the kernel of an architecture.
namespace openvc::cuda {

// Packed binary16 constants; code units are counted in steps of 2^-24 (numerics/exp_cast.hpp).
inline constexpr std::uint32_t kOneCode = 0x0001'0001u;       // 1 code, and the factor 2^-24
inline constexpr std::uint32_t kMinusOneCode = 0x8001'8001u;  // the factor -2^-24
inline constexpr std::uint32_t kPeakCodes = 0x007E'007Eu;     // 126 codes
inline constexpr std::uint32_t kLeastTops = 0xFBFF'FBFFu;     // numerics::kLeastTop
inline constexpr std::uint32_t kMinusInfinities = 0xFC00'FC00u;
static_assert(kPeakCodes == numerics::kPeakCode * kOneCode);
static_assert(kLeastTops == numerics::float_to_half(numerics::kLeastTop) * kOneCode);

/// Two main loops: HeadRule::wide().
enum class ExpCastPath { narrow, wide };

/// Factor of scores in the wide path: 2^(score_exponent - 24), packed.
__device__ __forceinline__ std::uint32_t wide_scale(const numerics::HeadRule& head) {
  return numerics::float_to_half(
             numerics::exp2_int(head.score_exponent + numerics::kHalfGridExponent)) *
         kOneCode;
}

/// Weight of a block of a narrow head, 2^(top / 8): numerics::begin_block.
__device__ __forceinline__ float narrow_weight(float top) {
  constexpr float kOctavesPerUnit = 1.0f / numerics::kE4m3CodesPerOctave;
  return ptx::ex2_approx(top * kOctavesPerUnit);
}

/// 2^((top - reference) / 8) of a wide head: the weight of a block, and the scale of what was
/// accumulated under another reference.
__device__ __forceinline__ float wide_weight(float top, float reference,
                                             const numerics::HeadRule& head) {
  const float octaves =
      numerics::exp2_int(head.score_exponent) * (1.0f / numerics::kE4m3CodesPerOctave);
  return ptx::ex2_approx((top - reference) * octaves);
}

/// Two values, one for each of two rows: row "low" sits in the low half of a packed register.
struct RowScale {
  float low = 1.0f;
  float high = 1.0f;
};

/// State of two rows: of narrow heads none.
struct RowPair {
  std::uint32_t reference = kLeastTops;  // packed, in units of the accumulated scores
};

/// A key block of two rows.
struct BlockPair {
  std::uint32_t top = kLeastTops;  // largest scores, packed
  RowScale weight{0.0f, 0.0f};     // of the block's sums

  /// numerics::begin_block of narrow heads.
  __device__ __forceinline__ void begin_narrow(std::uint32_t tops) {
    top = tops;
    weight.low = narrow_weight(ptx::cvt_f32_f16_low(tops));
    weight.high = narrow_weight(ptx::cvt_f32_f16_high(tops));
  }

  /// numerics::begin_block of wide heads, for tops up to the reference of the rows.
  __device__ __forceinline__ void begin_wide(std::uint32_t tops, const RowPair& rows,
                                             const numerics::HeadRule& head) {
    top = tops;
    weight = wide_weight(tops, rows.reference, head);
  }

  /// 2^((top - reference) / 8) of both rows.
  __device__ static __forceinline__ RowScale wide_weight(std::uint32_t tops,
                                                         std::uint32_t references,
                                                         const numerics::HeadRule& head) {
    return {
        cuda::wide_weight(ptx::cvt_f32_f16_low(tops), ptx::cvt_f32_f16_low(references), head),
        cuda::wide_weight(ptx::cvt_f32_f16_high(tops), ptx::cvt_f32_f16_high(references), head)};
  }
};

/// numerics::block_offset of packed tops, times 2^-24; tops of wide heads are subtracted
/// themselves.
template <ExpCastPath kPath>
__device__ __forceinline__ std::uint32_t block_offset(std::uint32_t tops) {
  if constexpr (kPath == ExpCastPath::wide) return tops;
  return ptx::fma_f16x2(tops, kMinusOneCode, kPeakCodes);
}

/// Codes of two scores, in the low bytes of the two halves. `offset`: block_offset() of their rows.
template <ExpCastPath kPath>
__device__ __forceinline__ std::uint32_t exp_cast_pair(std::uint32_t scores, std::uint32_t offset,
                                                       std::uint32_t scale) {
  if constexpr (kPath == ExpCastPath::wide) {
    return ptx::fma_relu_f16x2(ptx::sub_f16x2(scores, offset), scale, kPeakCodes);
  }
  return ptx::fma_relu_f16x2(scores, kOneCode, offset);
}

}  // namespace openvc::cuda
