// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/device/exp_cast.cuh"
#include "cuda/ptx/cvt.cuh"
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

/// The same binary16 bits in both halves of a register.
__device__ inline std::uint32_t twice(std::uint32_t half) { return half * 0x0001'0001u; }

/// block_offset() of every finite top, in the low and in the high half.
struct BlockOffsetRecipe {
  static constexpr const char* kName = "fma.f16x2 as block_offset, all finite tops, both halves";
  static constexpr std::uint64_t kCount = 1u << 16;
  __device__ Outcome operator()(std::uint64_t i) const {
    const auto offset = [](std::uint16_t top) -> std::uint32_t {
      return numerics::float_to_half(numerics::block_offset(numerics::half_to_float(top)) *
                                     numerics::exp2_int(numerics::kHalfGridExponent));
    };
    const auto low = static_cast<std::uint16_t>(i);
    const auto high = static_cast<std::uint16_t>(i * 0x9E37u + 1u);
    for (const std::uint16_t top : {low, high}) {
      if (!numerics::is_finite(numerics::half_to_float(top))) return {0, 0};
    }
    return {offset(low) | offset(high) << 16,
            cuda::block_offset<cuda::ExpCastPath::narrow>(low | std::uint32_t{high} << 16)};
  }
};

// The probability recipes. Index: score in the low 16 bits, the block above. A finite score above
// the top of its block does not occur and is left out; -inf and NaN scores are part of the test.

inline constexpr std::uint32_t kNanHalf = 0x7FFFu;

/// What the recipe must leave in a half: the code and a zero byte, or the canonical NaN.
__device__ inline std::uint32_t expected_half(std::uint8_t code) {
  return code == numerics::kNanProbability ? kNanHalf : code;
}

__device__ inline bool occurs(float score, float top) {
  return numerics::is_finite(top) && score != numerics::infinity() && !(score > top);
}

/// Every top whose magnitude a narrow head can have, and a little more.
struct NarrowRecipe {
  static constexpr const char* kName = "fma.relu.f16x2 recipe, all scores x all tops up to 700";
  static constexpr float kLargestTop = 700.0f;
  static constexpr std::uint64_t kTopsOfASign = numerics::float_to_half(kLargestTop) + 1u;
  static constexpr std::uint64_t kCount = 2 * kTopsOfASign << 16;
  __device__ Outcome operator()(std::uint64_t i) const {
    const auto score_bits = static_cast<std::uint16_t>(i);
    const std::uint64_t row = i >> 16;
    const auto top_bits =
        static_cast<std::uint16_t>(row < kTopsOfASign ? row : 0x8000u + (row - kTopsOfASign));
    const float score = numerics::half_to_float(score_bits);
    const float top = numerics::half_to_float(top_bits);
    if (!occurs(score, top)) return {0, 0};
    const numerics::HeadRule rule = numerics::head_rule(0, false);
    numerics::RowState state = numerics::empty_row(rule);
    const numerics::BlockCast block = numerics::begin_block(state, top, rule);
    constexpr auto kPath = cuda::ExpCastPath::narrow;
    return {twice(expected_half(numerics::probability_code(score, block, rule))),
            cuda::exp_cast_pair<kPath>(twice(score_bits),
                                       cuda::block_offset<kPath>(twice(top_bits)), cuda::kOneCode)};
  }
};

struct WideRecipe {
  static constexpr const char* kName = "sub and fma.relu.f16x2 recipe, all scores x 128 tops x 32";
  static constexpr std::uint64_t kTops = 128;
  static constexpr std::uint64_t kExponents = numerics::kMaxScoreExponent + 1;
  static constexpr std::uint64_t kCount = kExponents * kTops << 16;
  __device__ Outcome operator()(std::uint64_t i) const {
    const auto score_bits = static_cast<std::uint16_t>(i);
    const std::uint64_t row = (i >> 16) % kTops;
    const auto top_bits = static_cast<std::uint16_t>(row * (0x10000u / kTops) + row * 3 % 512);
    const float score = numerics::half_to_float(score_bits);
    const float top = numerics::half_to_float(top_bits);
    if (!occurs(score, top)) return {0, 0};
    const numerics::HeadRule rule = numerics::head_rule(static_cast<int>((i >> 16) / kTops), true);
    numerics::RowState state = numerics::empty_row(rule);
    const numerics::BlockCast block = numerics::begin_block(state, top, rule);
    constexpr auto kPath = cuda::ExpCastPath::wide;
    return {
        twice(expected_half(numerics::probability_code(score, block, rule))),
        cuda::exp_cast_pair<kPath>(twice(score_bits), cuda::block_offset<kPath>(twice(top_bits)),
                                   cuda::wide_scale(rule))};
  }
};

/// Largest relative difference of a block's weight on a device from that of the contract: 2^-22 of
/// ex2.approx and one unit in the last place of exp2_code_units. Subnormal weights become 0.
inline constexpr float kWeightError = 0x1p-21f;

/// 0, or how far beyond kWeightError the weight is, in units of it.
__device__ inline std::uint32_t weight_excess(float expected, float found) {
  if (expected < 0x1p-126f) return found <= 0x1p-126f && found >= 0.0f ? 0u : 0xFFFF'FFFFu;
  const float difference = numerics::magnitude(found - expected) / expected;
  return difference <= kWeightError ? 0u : static_cast<std::uint32_t>(difference / kWeightError);
}

/// Weights of narrow blocks: every top up to 700 of either sign, the least top, in both rows.
struct NarrowWeights {
  static constexpr const char* kName = "ex2.approx as weight of narrow blocks, within 2^-21";
  static constexpr std::uint64_t kCount = 1u << 16;
  __device__ Outcome operator()(std::uint64_t i) const {
    const auto bits = static_cast<std::uint16_t>(i);
    const float top = numerics::half_to_float(bits);
    const bool least = top == numerics::kLeastTop;
    if (!(numerics::magnitude(top) <= NarrowRecipe::kLargestTop) && !least) return {0, 0};
    cuda::BlockPair block;
    block.begin_narrow(twice(bits));
    const float expected = numerics::exp2_code_units(top);
    return {0,
            weight_excess(expected, block.weight.low) | weight_excess(expected, block.weight.high)};
  }
};

/// Weights of wide blocks: every top against references at and above it, for every exponent.
struct WideWeights {
  static constexpr const char* kName = "ex2.approx as weight of wide blocks, within 2^-21";
  static constexpr std::uint64_t kReferences = 16;
  static constexpr std::uint64_t kExponents = numerics::kMaxScoreExponent + 1;
  static constexpr std::uint64_t kCount = kExponents * kReferences << 16;
  __device__ Outcome operator()(std::uint64_t i) const {
    const auto top_bits = static_cast<std::uint16_t>(i);
    const float top = numerics::half_to_float(top_bits);
    if (!numerics::is_finite(top)) return {0, 0};
    const std::uint64_t pair = (i >> 16) % kReferences;
    const int exponent = static_cast<int>((i >> 16) / kReferences);
    // 0, then up to 2^7 octaves above the top.
    const float above =
        pair == 0 ? 0.0f : numerics::exp2_int(static_cast<int>(pair) - 5 - exponent);
    const std::uint16_t reference_bits = numerics::float_to_half(top + above);
    const float reference = numerics::half_to_float(reference_bits);
    if (!numerics::is_finite(reference)) return {0, 0};
    const numerics::HeadRule rule = numerics::head_rule(exponent, true);
    const numerics::RowState before{.reference = reference, .sum = 1.0f};
    numerics::RowState state = before;
    const numerics::BlockCast block = numerics::begin_block(state, top, rule);
    cuda::BlockPair device;
    device.begin_wide(twice(top_bits), cuda::RowPair{.reference = twice(reference_bits)}, rule);
    return {0, weight_excess(block.weight, device.weight.low) |
                   weight_excess(block.weight, device.weight.high)};
  }
};

}  // namespace openvc::exhaustive
