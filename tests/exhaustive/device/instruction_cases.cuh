// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/ptx/cvt.cuh"
#include "cuda/ptx/ex2.cuh"
#include "cuda/ptx/f16x2.cuh"
#include "numerics/e4m3.hpp"
#include "numerics/exp_cast.hpp"
#include "numerics/half.hpp"
#include "numerics/online_softmax.hpp"

// Hardware instructions that stand in for functions of the contract. A case gives, for an index,
// the bits that the contract expects and those that the instruction leaves.
namespace openvc::exhaustive {

struct Outcome {
  std::uint32_t expected;
  std::uint32_t found;
};

/// A NaN of binary16 or bfloat16 as one pattern.
__device__ inline std::uint32_t any_nan(std::uint32_t bits, std::uint32_t infinity_bits) {
  return (bits & 0x7FFFu) > infinity_bits ? 0x7FFFu : bits;
}

/// cvt.rn.satfinite.e4m3x2.f32, the tested float in the low or in the high byte.
struct CvtE4m3x2 {
  static constexpr const char* kName = "cvt.rn.satfinite.e4m3x2.f32, all floats, both bytes";
  static constexpr std::uint64_t kCount = std::uint64_t{1} << 32;
  __device__ Outcome operator()(std::uint64_t i) const {
    const float x = numerics::float_from_bits(static_cast<std::uint32_t>(i));
    const float other = numerics::float_from_bits(static_cast<std::uint32_t>(i) * 0x9E37'79B1u);
    std::uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(other), "f"(x));
    const std::uint32_t expected =
        numerics::e4m3_encode(x) | std::uint32_t{numerics::e4m3_encode(other)} << 8;
    return {expected, pair};
  }
};

struct CvtF16 {
  static constexpr const char* kName = "cvt.rn.satfinite.f16x2.f32, all floats";
  static constexpr std::uint64_t kCount = std::uint64_t{1} << 32;
  __device__ Outcome operator()(std::uint64_t i) const {
    const float x = numerics::float_from_bits(static_cast<std::uint32_t>(i));
    const std::uint32_t pair = cuda::ptx::cvt_rn_satfinite_f16x2(x, 1.0f);
    constexpr std::uint32_t kInfinity = 0x7C00u;
    return {any_nan(numerics::float_to_half(numerics::saturate(x, numerics::kHalfMax)), kInfinity) |
                0x3C00'0000u,
            any_nan(pair & 0xFFFFu, kInfinity) | (pair & 0xFFFF'0000u)};
  }
};

struct CvtBf16 {
  static constexpr const char* kName = "cvt.rn.satfinite.bf16x2.f32, all floats";
  static constexpr std::uint64_t kCount = std::uint64_t{1} << 32;
  __device__ Outcome operator()(std::uint64_t i) const {
    const float x = numerics::float_from_bits(static_cast<std::uint32_t>(i));
    const std::uint32_t pair = cuda::ptx::cvt_rn_satfinite_bf16x2(x, 1.0f);
    constexpr std::uint32_t kInfinity = 0x7F80u;
    return {any_nan(numerics::float_to_bfloat16(numerics::saturate(x, numerics::kBfloat16Max)),
                    kInfinity) |
                0x3F80'0000u,
            any_nan(pair & 0xFFFFu, kInfinity) | (pair & 0xFFFF'0000u)};
  }
};

/// (kPeakCode - ceil(row_max)) 2^-24 rounded down to binary16, for every finite row maximum.
struct CvtRowOffset {
  static constexpr const char* kName = "cvt.rm.f16.f32 as row_offset, all finite row maxima";
  static constexpr std::uint64_t kCount = 1u << 16;
  __device__ Outcome operator()(std::uint64_t i) const {
    const float row_max = numerics::half_to_float(static_cast<std::uint16_t>(i));
    if (!numerics::is_finite(row_max)) return {0, 0};
    const float grid = numerics::exp2_int(numerics::kHalfGridExponent);
    const std::uint32_t pair =
        cuda::ptx::cvt_rm_f16x2((numerics::kPeakCode - ceilf(row_max)) * grid, 0.0f);
    return {numerics::float_to_half(numerics::row_offset(row_max) * grid), pair};
  }
};

// The probability recipes. Index: score in the low 16 bits, the row above. A finite score above the
// row's maximum does not occur and is left out; infinite and NaN scores are part of the test.

inline constexpr std::uint32_t kNanHalf = 0x7FFFu;

/// What the recipe must leave in a half: the code and a zero byte, or the canonical NaN.
__device__ inline std::uint32_t expected_half(std::uint8_t code) {
  return code == numerics::kNanProbability ? kNanHalf : code;
}

/// The same score in both halves, relative to a common 2^-24 grid.
__device__ inline std::uint32_t twice(std::uint32_t half) { return half * 0x0001'0001u; }

inline constexpr std::uint32_t kGridHalf = 0x0001u;       // 2^-24
inline constexpr std::uint32_t kQuarterHalf = 0x3400u;    // 1/4
inline constexpr std::uint32_t kInterceptHalf = 0x0004u;  // 4 * 2^-24

__device__ inline std::uint32_t code_halves(std::uint32_t value, std::uint32_t scale,
                                            std::uint32_t bias, bool tail) {
  if (!tail) return cuda::ptx::fma_relu_f16x2(value, scale, bias);
  const std::uint32_t x = cuda::ptx::fma_f16x2(value, scale, bias);
  const std::uint32_t y = cuda::ptx::fma_relu_f16x2(x, twice(kQuarterHalf), twice(kInterceptHalf));
  return cuda::ptx::max_f16x2(x, y);
}

struct Recipe {
  static constexpr const char* kName = "fma.relu.f16x2 recipes, all scores x 4096 rows x 2 rules";
  static constexpr std::uint64_t kRows = 4096;
  static constexpr std::uint64_t kCount = 2 * kRows << 16;
  __device__ Outcome operator()(std::uint64_t i) const {
    const auto score_bits = static_cast<std::uint16_t>(i);
    const std::uint64_t row_index = (i >> 16) % kRows;
    const float score = numerics::half_to_float(score_bits);
    const float row_max = numerics::half_to_float(
        static_cast<std::uint16_t>(row_index * (0x10000u / kRows) + row_index % 16));
    if (!(numerics::magnitude(row_max) <= 60000.0f)) return {0, 0};
    if (numerics::is_finite(score) && score > row_max) return {0, 0};
    if (score == numerics::infinity()) return {0, 0};
    const numerics::HeadRule rule = numerics::head_rule(0, (i >> 16) >= kRows);
    numerics::RowState row;
    numerics::raise_row_max(row, row_max, rule);
    const std::uint32_t offset =
        numerics::float_to_half(row.offset * numerics::exp2_int(numerics::kHalfGridExponent));
    const std::uint32_t expected = expected_half(numerics::probability_code(score, row, rule));
    return {twice(expected),
            code_halves(twice(score_bits), twice(kGridHalf), twice(offset), rule.tail_correction)};
  }
};

struct WideRecipe {
  static constexpr const char* kName = "sub and fma.relu.f16x2 recipes of wide rows";
  static constexpr std::uint64_t kRows = 128;
  static constexpr std::uint64_t kExponents = numerics::kMaxScoreExponent;
  static constexpr std::uint64_t kCount = 2 * kExponents * kRows << 16;
  __device__ Outcome operator()(std::uint64_t i) const {
    const auto score_bits = static_cast<std::uint16_t>(i);
    const std::uint64_t row_index = (i >> 16) % kRows;
    const std::uint64_t rule_index = (i >> 16) / kRows;
    const float score = numerics::half_to_float(score_bits);
    const auto max_bits =
        static_cast<std::uint16_t>(row_index * (0x10000u / kRows) + row_index * 3 % 512);
    const float row_max = numerics::half_to_float(max_bits);
    if (!numerics::is_finite(row_max)) return {0, 0};
    if (numerics::is_finite(score) && score > row_max) return {0, 0};
    if (score == numerics::infinity()) return {0, 0};
    const numerics::HeadRule rule = numerics::head_rule(
        1 + static_cast<int>(rule_index % kExponents), rule_index >= kExponents);
    numerics::RowState row;
    numerics::raise_row_max(row, row_max, rule);
    const std::uint32_t scale = numerics::float_to_half(
        numerics::exp2_int(rule.score_exponent + numerics::kHalfGridExponent));
    const std::uint32_t difference = cuda::ptx::sub_f16x2(twice(score_bits), twice(max_bits));
    const std::uint32_t expected = expected_half(numerics::probability_code(score, row, rule));
    return {twice(expected), code_halves(difference, twice(scale), twice(numerics::kPeakCode),
                                         rule.tail_correction)};
  }
};

/// Relative difference of ex2.approx from the contract's factor between row offsets, as multiples
/// of 2^-21, for every whole number of code units with a normal result.
struct Ex2Approx {
  static constexpr const char* kName = "ex2.approx as exp2_code_units, within 2^-21";
  static constexpr std::uint64_t kCount = 126 * 8 + 1;
  __device__ Outcome operator()(std::uint64_t i) const {
    const float code_units = -static_cast<float>(i);
    const float exact = numerics::exp2_code_units(code_units);
    const float found = cuda::ptx::ex2_approx(code_units / numerics::kE4m3CodesPerOctave);
    const float difference = numerics::magnitude(found - exact) / exact;
    return {0, static_cast<std::uint32_t>(difference * 0x1p21f)};
  }
};

}  // namespace openvc::exhaustive
