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

// ExpCast and the state of the online softmax in packed binary16, two values a register: the
// contract of numerics/online_softmax.hpp in the instructions of the machine. Which scores a
// register holds, and which threads share a row, is up to the kernel of an architecture.
namespace openvc::cuda {

// Packed binary16 constants; code units are counted in steps of 2^-24 (numerics/exp_cast.hpp).
inline constexpr std::uint32_t kOneCode = 0x0001'0001u;        // 1 code, and the factor 2^-24
inline constexpr std::uint32_t kPeakCodes = 0x007E'007Eu;      // 126 codes
inline constexpr std::uint32_t kTailIntercept = 0x0004'0004u;  // 4 codes
inline constexpr std::uint32_t kTailSlope = 0x3400'3400u;      // 1/4
inline constexpr std::uint32_t kMinusInfinities = 0xFC00'FC00u;
static_assert(kPeakCodes == numerics::kPeakCode * kOneCode);

/// How a head turns scores into probability codes: its rule, in registers.
struct ExpCastRule {
  std::uint32_t scale;  // 2^(score_exponent - 24), packed
  float units;          // 2^score_exponent
  bool wide;

  __device__ explicit ExpCastRule(const numerics::HeadRule& head)
      : scale(kOneCode),
        units(numerics::exp2_int(head.score_exponent)),
        wide(head.score_exponent > 0) {
    const auto half = numerics::float_to_half(
        numerics::exp2_int(head.score_exponent + numerics::kHalfGridExponent));
    scale = half * kOneCode;
  }
};

/// The instructions that a rule needs.
enum class ExpCastForm { plain, tail, wide, wide_tail };

/// Codes of two scores, in the low bytes of the two halves.
///
///   plain, tail   row_offset of RowPair, for both halves
///   wide          the row maximum, which is subtracted before the scores are scaled
template <ExpCastForm kForm>
__device__ __forceinline__ std::uint32_t exp_cast(std::uint32_t scores, std::uint32_t row_offset,
                                                  const ExpCastRule& rule) {
  std::uint32_t value = scores;
  std::uint32_t scale = kOneCode;
  std::uint32_t offset = row_offset;
  if constexpr (kForm == ExpCastForm::wide || kForm == ExpCastForm::wide_tail) {
    value = ptx::sub_f16x2(scores, row_offset);
    scale = rule.scale;
    offset = kPeakCodes;
  }
  if constexpr (kForm == ExpCastForm::plain || kForm == ExpCastForm::wide) {
    return ptx::fma_relu_f16x2(value, scale, offset);
  } else {
    const std::uint32_t code = ptx::fma_f16x2(value, scale, offset);
    return ptx::max_f16x2(code, ptx::fma_relu_f16x2(code, kTailSlope, kTailIntercept));
  }
}

/// Factors by which everything accumulated for two rows must be multiplied.
struct RowScale {
  float low = 1.0f;
  float high = 1.0f;
};

/// State of two rows: row "low" in the low halves, row "high" in the high halves.
struct RowPair {
  std::uint32_t row_max = kMinusInfinities;  // running maximum, in units of the accumulated scores
  std::uint32_t row_offset = 0;  // numerics::row_offset * 2^-24; wide: the maximum itself

  /// Sets the offsets for a new maximum: the contract's raise_row_max for two rows.
  __device__ RowScale raise(std::uint32_t new_max, const ExpCastRule& rule) {
    const float old_low = ptx::cvt_f32_f16_low(row_max);
    const float old_high = ptx::cvt_f32_f16_high(row_max);
    const float new_low = ptx::cvt_f32_f16_low(new_max);
    const float new_high = ptx::cvt_f32_f16_high(new_max);
    constexpr float kOctavesPerUnit = 1.0f / numerics::kE4m3CodesPerOctave;
    RowScale row_scale;
    if (rule.wide) {
      row_scale.low = ptx::ex2_approx((old_low - new_low) * rule.units * kOctavesPerUnit);
      row_scale.high = ptx::ex2_approx((old_high - new_high) * rule.units * kOctavesPerUnit);
      row_offset = new_max;
    } else {
      constexpr float kGrid = 0x1p-24f;
      constexpr float kOctavesPerGrid = 0x1p24f * kOctavesPerUnit;
      const float peak = numerics::kPeakCode;
      const std::uint32_t raised =
          ptx::cvt_rm_f16x2((peak - ceilf(new_low)) * kGrid, (peak - ceilf(new_high)) * kGrid);
      row_scale.low = ptx::ex2_approx(
          (ptx::cvt_f32_f16_low(raised) - ptx::cvt_f32_f16_low(row_offset)) * kOctavesPerGrid);
      row_scale.high = ptx::ex2_approx(
          (ptx::cvt_f32_f16_high(raised) - ptx::cvt_f32_f16_high(row_offset)) * kOctavesPerGrid);
      row_offset = raised;
    }
    // A row that had no key yet has accumulated nothing; one that still has none keeps offset 0.
    const float nothing = -numerics::infinity();
    if (old_low == nothing) row_scale.low = 1.0f;
    if (old_high == nothing) row_scale.high = 1.0f;
    if (new_low == nothing) row_offset &= 0xFFFF'0000u;
    if (new_high == nothing) row_offset &= 0x0000'FFFFu;
    row_max = new_max;
    return row_scale;
  }

  /// Offset of one row in code units, as the contract keeps it.
  __device__ float code_offset(bool high, const ExpCastRule& rule) const {
    const float stored =
        high ? ptx::cvt_f32_f16_high(row_offset) : ptx::cvt_f32_f16_low(row_offset);
    return rule.wide ? numerics::kPeakCode - stored * rule.units : stored * 0x1p24f;
  }
};

}  // namespace openvc::cuda
