// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/canonical_sum.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/exp_cast.hpp"
#include "numerics/hadamard.hpp"
#include "numerics/half.hpp"
#include "numerics/online_softmax.hpp"
#include "numerics/plan_scores.hpp"
#include "numerics/qk_quantize.hpp"
#include "numerics/score_scale.hpp"
#include "numerics/v_quantize.hpp"

// Contract functions to evaluate on the host and on the device. A case maps an index to 32 bits;
// both sides must give the same bits for every index. Results of more than 32 bits are hashed.
namespace openvc::exhaustive {

using namespace openvc::numerics;

/// Bits of a result in which every NaN counts as the same: processors differ in the sign and the
/// payload of a NaN that arithmetic makes.
OPENVC_HD inline std::uint32_t result_bits(float x) { return float_bits(x == x ? x : quiet_nan()); }

/// FNV-1a over words.
struct Hash {
  std::uint32_t value = 0x811C'9DC5u;
  OPENVC_HD void add(std::uint32_t word) {
    for (int byte = 0; byte < 4; ++byte) {
      value = (value ^ ((word >> (8 * byte)) & 0xFFu)) * 0x0100'0193u;
    }
  }
  OPENVC_HD void add(float x) { add(result_bits(x)); }
};

/// splitmix64, for arguments. At most one call an expression: compilers differ in the order of
/// evaluation.
struct Random {
  std::uint64_t state;
  OPENVC_HD std::uint32_t bits() {
    state += 0x9E37'79B9'7F4A'7C15u;
    std::uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9u;
    z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EBu;
    return static_cast<std::uint32_t>((z ^ (z >> 31)) >> 32);
  }
  OPENVC_HD int below(int bound) {
    return static_cast<int>(bits() % static_cast<std::uint32_t>(bound));
  }
  /// Any float, NaN and infinities included.
  OPENVC_HD float any() { return float_from_bits(bits()); }
  /// A signed number with 2^low <= |x| < 2^high.
  OPENVC_HD float number(int low, int high) {
    const auto exponent = static_cast<std::uint32_t>(low + below(high - low) + kFloatExponentBias);
    return float_from_bits((bits() & 0x807F'FFFFu) | exponent << kFloatMantissaBits);
  }
};

inline constexpr std::uint64_t kAllFloats = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kAllHalves = 1u << 16;
inline constexpr std::uint64_t kRandomCases = 1u << 20;

OPENVC_HD inline float half_at(std::uint64_t index) {
  return half_to_float(static_cast<std::uint16_t>(index % kAllHalves));
}

struct EncodeE4m3 {
  static constexpr const char* kName = "e4m3_encode, all floats";
  static constexpr std::uint64_t kCount = kAllFloats;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    return e4m3_encode(float_from_bits(static_cast<std::uint32_t>(i)));
  }
};

struct DecodeE4m3 {
  static constexpr const char* kName = "e4m3_decode, all codes";
  static constexpr std::uint64_t kCount = 256;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    return float_bits(e4m3_decode(static_cast<std::uint8_t>(i)));
  }
};

struct RoundToHalf {
  static constexpr const char* kName = "float_to_half, all floats";
  static constexpr std::uint64_t kCount = kAllFloats;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    return float_to_half(float_from_bits(static_cast<std::uint32_t>(i)));
  }
};

struct RoundToBfloat16 {
  static constexpr const char* kName = "float_to_bfloat16, all floats";
  static constexpr std::uint64_t kCount = kAllFloats;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    return float_to_bfloat16(float_from_bits(static_cast<std::uint32_t>(i)));
  }
};

struct WidenHalf {
  static constexpr const char* kName = "half_to_float and bfloat16_to_float, all patterns";
  static constexpr std::uint64_t kCount = 2 * kAllHalves;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    const auto bits = static_cast<std::uint16_t>(i % kAllHalves);
    return float_bits(i < kAllHalves ? half_to_float(bits) : bfloat16_to_float(bits));
  }
};

struct BlockOffset {
  static constexpr const char* kName = "block_offset, all tops";
  static constexpr std::uint64_t kCount = kAllHalves;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    return result_bits(block_offset(half_at(i)));
  }
};

/// Every score with tops that step through all binary16 values, infinities and NaN included.
struct ProbabilityCode {
  static constexpr const char* kName = "probability_code of narrow heads, all scores x 4096 tops";
  static constexpr std::uint64_t kTops = 4096;
  static constexpr std::uint64_t kCount = kTops * kAllHalves;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    const std::uint64_t index = i / kAllHalves;
    const float top = half_at(index * (kAllHalves / kTops) + index % 16);
    const BlockCast block{.top = top, .offset = block_offset(top)};
    return probability_code(half_at(i), block, head_rule(0, false));
  }
};

/// Every score relative to a few tops, for every exponent.
struct WideProbabilityCode {
  static constexpr const char* kName = "probability_code of wide heads, all scores x 32 tops x 32";
  static constexpr std::uint64_t kTops = 32;
  static constexpr std::uint64_t kExponents = kMaxScoreExponent + 1;
  static constexpr std::uint64_t kCount = kTops * kExponents * kAllHalves;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    const BlockCast block{.top = half_at(i / kAllHalves % kTops * 2057u)};
    const int exponent = static_cast<int>(i / kAllHalves / kTops);
    return probability_code(half_at(i), block, head_rule(exponent, true));
  }
};

struct Exp2CodeUnits {
  static constexpr const char* kName = "exp2_code_units, all floats in [-1200, 1016)";
  static constexpr std::uint32_t kFirst = 0x8000'0000u;  // -0; bits rise as values fall
  static constexpr std::uint64_t kBelow = float_bits(-1200.0f) - kFirst + 1;
  static constexpr std::uint64_t kCount = kBelow + float_bits(1016.0f);
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    const std::uint64_t bits = i < kBelow ? kFirst + i : i - kBelow;
    return result_bits(exp2_code_units(float_from_bits(static_cast<std::uint32_t>(bits))));
  }
};

/// A row that meets eight blocks.
struct RowUpdates {
  static constexpr const char* kName = "begin_block, end_block and log_sum_exp, random rows";
  static constexpr std::uint64_t kCount = kRandomCases;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    Random random{i};
    const bool wide = i % 2 != 0;
    HeadRule rule = head_rule(wide ? random.below(kMaxScoreExponent + 1) : 0, wide);
    RowState row = empty_row(rule);
    Hash hash;
    for (int block = 0; block < 8; ++block) {
      const float score = random.number(-4, wide ? 12 : 9);  // narrow: below 512 code units
      const float top = half_to_float(float_to_half(score * exp2_int(-rule.score_exponent)));
      const BlockCast cast = begin_block(row, top, rule);
      end_block(row, cast, 1000.0f);
      for (const float x : {cast.top, cast.offset, cast.weight, cast.rescale}) hash.add(x);
      hash.add(row.reference);
      hash.add(row.sum);
    }
    const float log_sum = random.number(-3, 5);
    const float shift = random.number(-3, 5);
    hash.add(log_sum_exp(row, rule, log_sum, shift));
    rule.excess_exponent = static_cast<std::uint8_t>(random.below(kMaxExcessExponent + 1));
    hash.add(log_sum_exp(row, rule, log_sum, shift));
    return hash.value;
  }
};

struct QuantizeQueriesAndKeys {
  static constexpr const char* kName = "quantize and residual columns, random floats";
  static constexpr std::uint64_t kCount = kRandomCases;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    Random random{i};
    const float x = i % 4 == 0 ? random.any() : random.number(-12, 12);
    const Quantized quantized = quantize(x, exp2_int(random.below(7) - 3));
    Hash hash;
    hash.add(std::uint32_t{quantized.code} | std::uint32_t{encode_low(quantized)} << 8 |
             std::uint32_t{encode_high(quantized)} << 16);
    hash.add(quantized.residual);
    return hash.value;
  }
};

struct QuantizeValues {
  static constexpr const char* kName = "channel mean, scale and coordinates, random channels";
  static constexpr std::uint64_t kCount = kRandomCases;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    Random random{i};
    const int exponent = random.below(250) - 126;
    float values[40];
    ChannelRange range;
    const int tokens = 1 + random.below(40);
    for (int t = 0; t < tokens; ++t) {
      const float v = random.number(exponent, exponent + 3);
      values[t] = v;
      range.max = v > range.max ? v : range.max;
      range.min = v < range.min ? v : range.min;
    }
    Hash hash;
    float sums[40];
    for (int t = 0; t < tokens; ++t) sums[t] = values[t];
    range.sum = sum_tree(tokens, [&](std::int64_t t) -> float& { return sums[t]; });
    const float mean = channel_mean(range, tokens);
    const ChannelCode code = channel_code(mean, channel_spread(range, mean), i % 64 != 0);
    hash.add(code.mean);
    hash.add(code.scale);
    hash.add(code.multiplier);
    for (int t = 0; t < tokens; ++t) {
      hash.add(std::uint32_t{e4m3_encode(channel_coordinate(values[t], code))});
    }
    return hash.value;
  }
};

struct SumsAndRotation {
  static constexpr const char* kName = "canonical sums and hadamard, random rows";
  static constexpr std::uint64_t kCount = kRandomCases / 4;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    Random random{i};
    float row[kHeadDim];
    for (float& x : row) x = random.number(-10, 10);
    const auto at = [&](int c) { return row[c]; };
    Hash hash;
    hash.add(row_sum_squares(at));
    hash.add(sum_group(1 + random.below(kHeadDim), at));
    hash.add(sum_squares_group(1 + random.below(kHeadDim), at));
    hadamard(row);
    for (const float x : row) hash.add(x);
    return hash.value;
  }
};

struct ScoreScales {
  static constexpr const char* kName = "norm exponents and score_scale, random extents";
  static constexpr std::uint64_t kCount = kRandomCases;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    Random random{i};
    Extent extent;
    extent.magnitude_bits = magnitude_bits(random.number(-126, 128));
    extent.row_sum_squares = magnitude(random.number(-100, 120));
    const int h = squared_norm_exponent(extent);
    const ScoreScale scale = score_scale(h, random.below(500) - 244);
    Hash hash;
    for (const int x : {h, scale.query_exponent, scale.key_exponent, scale.score_exponent,
                        scale.excess_exponent}) {
      hash.add(static_cast<std::uint32_t>(x));
    }
    return hash.value;
  }
};

struct ScorePlans {
  static constexpr const char* kName = "plan_scores, random statistics";
  static constexpr std::uint64_t kCount = 1u << 14;
  OPENVC_HD std::uint32_t operator()(std::uint64_t i) const {
    Random random{i};
    ScoreStatistics statistics;
    const float tokens = 1000.0f;
    for (int c = 0; c < kHeadDim; ++c) {
      statistics.query_squares[c] = tokens * magnitude(random.number(-4, 8));
      statistics.key_squares[c] = tokens * magnitude(random.number(-4, 8));
      statistics.key_sums[c] = tokens * random.number(-3, 1);
    }
    for (Extent* extent : {&statistics.query, &statistics.key}) {
      extent->magnitude_bits = magnitude_bits(random.number(2, 8));
      extent->row_sum_squares = magnitude(random.number(8, 14));
    }
    NumericOptions options;
    options.max_extra_steps = i % 2 == 0 ? 4 : 0;
    numerics::HeadPlan plan;
    plan_scores(statistics, 1000, 1000, 0.088f, options, plan);
    Hash hash;
    hash.add(plan.scores.query_multiplier);
    hash.add(plan.scores.key_multiplier);
    hash.add(plan.score_rounding.error);
    hash.add(static_cast<std::uint32_t>(plan.scores.extra_steps * 64 + plan.scores.score_exponent) *
                 2u +
             plan.scores.rotated);
    for (const float mean : plan.key_means) hash.add(mean);
    for (const std::uint8_t c : plan.residual_channels) hash.add(std::uint32_t{c});
    return hash.value;
  }
};

}  // namespace openvc::exhaustive
