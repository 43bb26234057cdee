// SPDX-License-Identifier: BSD-3-Clause
// Scores to probabilities. Included once per instruction set, as Highway does it.
#if defined(OPENVC_CPU_ATTENTION_SOFTMAX_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPENVC_CPU_ATTENTION_SOFTMAX_INL_HPP_
#undef OPENVC_CPU_ATTENTION_SOFTMAX_INL_HPP_
#else
#define OPENVC_CPU_ATTENTION_SOFTMAX_INL_HPP_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "cpu/attention_kernel.hpp"
#include "cpu/attention_words-inl.hpp"
#include "numerics/key_permutation.hpp"

HWY_BEFORE_NAMESPACE();
namespace openvc::cpu {
namespace HWY_NAMESPACE {
namespace {

inline constexpr int kGroup = kTileVectors * kLanes;

/// Vector forms of numerics::block_offset and numerics::exp2_code_units for the tops of narrow
/// heads, at most a few hundred code units, and for kLeastTop, whose block has no score that
/// counts.
HWY_INLINE FloatVector block_offsets(FloatVector top) {
  const FloatTag d;
  const auto grid = hn::Set(d, kIntegerGrid);
  const auto target = hn::Sub(hn::Set(d, static_cast<float>(numerics::kPeakCode)), top);
  return hn::Sub(hn::Add(target, grid), grid);
}

HWY_INLINE FloatVector block_weights(FloatVector top) {
  const FloatTag d;
#if !HWY_NATIVE_FMA  // the contract's series is one of fused multiply-adds
  alignas(kVectorAlignment) float weights[kLanes];
  hn::Store(top, d, weights);
  for (float& weight : weights) weight = numerics::exp2_code_units(weight);
  return hn::Load(d, weights);
#else
  const WordTag du;
  const auto grid = hn::Set(d, kIntegerGrid);
  constexpr float kZeroExponent = -127.0f;  // no bit is left of it
  const auto octaves = hn::Max(hn::Mul(top, hn::Set(d, 1.0f / numerics::kE4m3CodesPerOctave)),
                               hn::Set(d, kZeroExponent));
  const auto shifted = hn::Add(octaves, grid);
  const auto x = hn::Sub(octaves, hn::Sub(shifted, grid));
  constexpr numerics::Exp2Series kSeries;
  auto power = hn::Set(d, kSeries.coefficients[0]);
  HWY_UNROLL(8)
  for (int i = 1; i < numerics::Exp2Series::kTerms; ++i) {
    power = hn::MulAdd(power, x, hn::Set(d, kSeries.coefficients[i]));
  }
  const auto biased = hn::Add(hn::BitCast(du, shifted), hn::Set(du, 127u));
  return hn::Mul(power, hn::BitCast(d, hn::ShiftLeft<numerics::kFloatMantissaBits>(biased)));
#endif
}

/// Vector form of numerics::probability_code for the lanes of one vector, for scores that are not
/// NaN.
template <bool kWide>
class ProbabilityCast {
 public:
  ProbabilityCast(FloatVector top, FloatVector offset, int score_exponent) {
    const FloatTag d;
    auto bias = offset;
    if constexpr (kWide) {
      top_ = top;
      scale_ = hn::Set(d, numerics::exp2_int(score_exponent));
      bias = hn::Set(d, static_cast<float>(numerics::kPeakCode));
    }
    lowest_ = hn::Neg(bias);
    bias_ = hn::Add(bias, hn::Set(d, kIntegerGrid));
  }

  /// The code on the integer grid. The sum is rounded once; numerics::unclamped_code() rounds
  /// twice, but its first rounding is exact wherever the code is not clamped.
  [[nodiscard]] HWY_INLINE FloatVector operator()(FloatVector score) const {
    auto x = score;
    if constexpr (kWide) x = hn::Mul(round_to_half(hn::Sub(x, top_)), scale_);
    return hn::Add(hn::Max(x, lowest_), bias_);
  }

 private:
  FloatVector top_ = hn::Zero(FloatTag());
  FloatVector scale_ = hn::Zero(FloatTag());
  FloatVector lowest_ = hn::Zero(FloatTag());
  FloatVector bias_ = hn::Zero(FloatTag());
};

/// One row by the scalar contract: for scores that may be NaN.
inline bool convert_row(const CastTask& task, int lane) {
  using numerics::kKeyGroup;
  const int query = task.first_query + lane;
  auto* words = reinterpret_cast<Words::Word*>(task.probabilities);
  float top = numerics::kLeastTop;
  for (int key = 0; key < task.used_keys; ++key) {
    const float score = task.scores[key * kGroup + lane];
    if (score > top) top = score;
  }
  numerics::RowState row = task.rows->row(query);
  const numerics::BlockCast block = numerics::begin_block(row, top, task.rule);
  double sum = 0.0;
  for (int key = 0; key < task.used_keys; ++key) {
    const float score = task.scores[key * kGroup + lane];
    const float value = numerics::kE4m3Values[numerics::probability_code(score, block, task.rule)];
    const int slot = numerics::slot_of_key(key);
    Words::store_element(words + slot / Words::kWordElements * kGroup + lane,
                         slot % Words::kWordElements, value);
    sum += value;
  }
  if (!task.repair) numerics::end_block(row, block, static_cast<float>(sum));
  task.rows->set_row(query, row);
  task.rows->weight[query] = block.weight;
  task.rows->rescale[query] = block.rescale;
  return block.rescale != 1.0f;
}

/// Begins the block for the lanes of a vector at `first`, one by one.
inline bool begin_wide_blocks(const CastTask& task, FloatVector top, int first) {
  const FloatTag d;
  alignas(kVectorAlignment) float tops[kLanes];
  hn::Store(top, d, tops);
  bool rescaled = false;
  for (int lane = 0; lane < kLanes; ++lane) {
    numerics::RowState row = task.rows->row(first + lane);
    const numerics::BlockCast block = numerics::begin_block(row, tops[lane], task.rule);
    task.rows->set_row(first + lane, row);
    task.rows->weight[first + lane] = block.weight;
    task.rows->rescale[first + lane] = block.rescale;
    rescaled = rescaled || block.rescale != 1.0f;
  }
  return rescaled;
}

template <bool kWide>
bool cast_scores(const CastTask& task) {
  const FloatTag d;
  constexpr int kElements = Words::kWordElements;
  auto* words = reinterpret_cast<Words::Word*>(task.probabilities);
  bool rescaled = false;
  for (int v = 0; v < kTileVectors; ++v) {
    const int first = task.first_query + v * kLanes;
    const auto top = hn::Max(round_to_half(hn::Load(d, task.block_max + v * kLanes)),
                             hn::Set(d, numerics::kLeastTop));
    if constexpr (kWide) {
      if (begin_wide_blocks(task, top, first)) rescaled = true;
    } else {
      hn::Store(block_weights(top), d, task.rows->weight + first);
    }
    const ProbabilityCast<kWide> cast(top, block_offsets(top), task.rule.score_exponent);
    // Decoded codes are multiples of 2^-9 up to 448, so the sum of half a block is exact in any
    // order, and that of the block is rounded once.
    static_assert(numerics::kKeyBlock / 2 * numerics::kE4m3Max / numerics::kE4m3MinSubnormal <=
                  0x1p24f);
    FloatVector sums[2] = {hn::Zero(d), hn::Zero(d)};
    for (int group = 0; group < task.used_keys; group += numerics::kKeyGroup) {
      HWY_UNROLL(16)
      for (int i = 0; i < numerics::kKeyGroup / kElements; ++i) {
        const int key = group + numerics::key_of_slot(i * kElements);
        const float* scores = task.scores + key * kGroup + v * kLanes;
        FloatVector codes[kElements];
        for (int e = 0; e < kElements; ++e) codes[e] = cast(hn::Load(d, scores + e * kGroup));
        const int word = group / kElements + i;
        Words::store_probabilities(codes, words + word * kGroup + v * kLanes, sums[i % 2]);
      }
    }
    if (task.repair) continue;
    const auto block_sum = hn::Add(sums[0], sums[1]);
    float* sum = task.rows->sum + first;
    const auto weighted = hn::Mul(hn::Load(d, task.rows->weight + first), block_sum);
    hn::Store(hn::Add(hn::Load(d, sum), weighted), d, sum);
  }
  return rescaled;
}

inline bool cast_any(const CastTask& task) {
  if (!task.has_nan) return task.rule.wide() ? cast_scores<true>(task) : cast_scores<false>(task);
  bool rescaled = false;
  for (int lane = 0; lane < kGroup; ++lane) {
    if (convert_row(task, lane)) rescaled = true;
  }
  return rescaled;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace openvc::cpu
HWY_AFTER_NAMESPACE();

#endif  // OPENVC_CPU_ATTENTION_SOFTMAX_INL_HPP_
