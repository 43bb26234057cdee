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

/// Vector form of numerics::probability_code for the lanes of one vector. It holds for rows whose
/// maximum is not +inf and for scores up to that maximum; the others take convert_row().
template <bool kWide, bool kTail>
class ProbabilityCast {
 public:
  ProbabilityCast(FloatVector row_max, FloatVector offset, int score_exponent) {
    const FloatTag d;
    auto bias = offset;
    if constexpr (kWide) {
      // Rows that have seen nothing but -inf keep it: -inf - 0 instead of -inf + inf.
      const auto unset = hn::Eq(row_max, hn::Set(d, -numerics::infinity()));
      reference_ = hn::IfThenZeroElse(unset, row_max);
      scale_ = hn::Set(d, numerics::exp2_int(score_exponent));
      bias = hn::Set(d, static_cast<float>(numerics::kPeakCode));
    }
    lowest_ = hn::Sub(hn::Set(d, kTail ? kLowestTailCode : 0.0f), bias);
    bias_ = hn::Add(bias, hn::Set(d, kIntegerGrid));
  }

  /// The code on the integer grid. The sum is rounded once; numerics::unclamped_code() rounds
  /// twice, but its first rounding is exact wherever the code is not clamped.
  [[nodiscard]] HWY_INLINE FloatVector operator()(FloatVector score) const {
    const FloatTag d;
    const auto grid = hn::Set(d, kIntegerGrid);
    auto x = score;
    if constexpr (kWide) x = hn::Mul(round_to_half(hn::Sub(x, reference_)), scale_);
    const auto code = hn::Add(hn::Max(x, lowest_), bias_);
    if constexpr (!kTail) return code;
    const auto line =
        hn::MulAdd(hn::Sub(code, grid), hn::Set(d, 0.25f), hn::Set(d, kIntegerGrid + 4.0f));
    return hn::Max(hn::Max(code, line), grid);
  }

 private:
  // Below -16 the corrected code is 0.
  static constexpr float kLowestTailCode = -20.0f;

  FloatVector reference_ = hn::Zero(FloatTag());
  FloatVector scale_ = hn::Zero(FloatTag());
  FloatVector lowest_ = hn::Zero(FloatTag());
  FloatVector bias_ = hn::Zero(FloatTag());
};

/// One row by the scalar contract: NaN, +inf and scores above the maximum of a repair row.
inline void convert_row(const CastTask& task, int lane, float sum_before) {
  using numerics::kKeyGroup;
  const int query = task.first_query + lane;
  auto* words = reinterpret_cast<Words::Word*>(task.probabilities);
  numerics::RowState row = task.rows->row(query);
  if (task.has_nan && !task.repair) {
    float block_max = -numerics::infinity();
    for (int key = 0; key < task.used_keys; ++key) {
      const float score = task.scores[key * kGroup + lane];
      if (score > block_max) block_max = score;
    }
    row.sum = sum_before;
    task.rows->factor[query] = numerics::raise_row_max(row, block_max, task.rule);
    sum_before = row.sum;
  }
  double sum = 0.0;
  for (int key = 0; key < task.used_keys; ++key) {
    const float score = task.scores[key * kGroup + lane];
    const float value = numerics::kE4m3Values[numerics::probability_code(score, row, task.rule)];
    const int slot = numerics::slot_of_key(key);
    Words::store_element(words + slot / Words::kWordElements * kGroup + lane,
                         slot % Words::kWordElements, value);
    sum += value;
  }
  row.sum = task.repair ? sum_before : sum_before + static_cast<float>(sum);
  task.rows->set_row(query, row);
}

/// Raises the maxima of the lanes of vector `v` where the block exceeds them.
inline bool raise_maxima(const CastTask& task, int v) {
  const FloatTag d;
  const int first = task.first_query + v * kLanes;
  float* factor = task.rows->factor + first;
  hn::Store(hn::Set(d, 1.0f), d, factor);
  const auto block_max = round_to_half(hn::Load(d, task.block_max + v * kLanes));
  const auto row_max = hn::Load(d, task.rows->row_max + first);
  if (HWY_LIKELY(hn::AllFalse(d, hn::Gt(block_max, row_max)))) return false;
  alignas(kVectorAlignment) float maxima[kLanes];
  hn::Store(block_max, d, maxima);
  bool rescaled = false;
  for (int lane = 0; lane < kLanes; ++lane) {
    numerics::RowState row = task.rows->row(first + lane);
    factor[lane] = numerics::raise_row_max(row, maxima[lane], task.rule);
    task.rows->set_row(first + lane, row);
    rescaled = rescaled || factor[lane] != 1.0f;
  }
  return rescaled;
}

/// Lanes of vector `v` that ProbabilityCast does not cover.
HWY_INLINE hn::Mask<FloatTag> uncovered_rows(const CastTask& task, int v) {
  const FloatTag d;
  const auto row_max = hn::Load(d, task.rows->row_max + task.first_query + v * kLanes);
  const auto infinite = hn::Eq(row_max, hn::Set(d, numerics::infinity()));
  if (!task.repair) return infinite;
  const auto block_max = round_to_half(hn::Load(d, task.block_max + v * kLanes));
  return hn::Or(infinite, hn::Gt(block_max, row_max));
}

template <bool kWide, bool kTail>
bool cast_scores(const CastTask& task) {
  const FloatTag d;
  constexpr int kElements = Words::kWordElements;
  auto* words = reinterpret_cast<Words::Word*>(task.probabilities);
  bool rescaled = false;
  for (int v = 0; v < kTileVectors; ++v) {
    const int first = task.first_query + v * kLanes;
    if (!task.repair && raise_maxima(task, v)) rescaled = true;
    const auto uncovered = uncovered_rows(task, v);
    const ProbabilityCast<kWide, kTail> cast(hn::Load(d, task.rows->row_max + first),
                                             hn::Load(d, task.rows->offset + first),
                                             task.rule.score_exponent);
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
    float* sum = task.rows->sum + first;
    const auto before = hn::Load(d, sum);
    if (!task.repair) hn::Store(hn::Add(before, hn::Add(sums[0], sums[1])), d, sum);
    if (HWY_LIKELY(hn::AllFalse(d, uncovered))) continue;
    alignas(kVectorAlignment) float sums_before[kLanes];
    alignas(kVectorAlignment) float flags[kLanes];
    hn::Store(before, d, sums_before);
    hn::Store(hn::IfThenElseZero(uncovered, hn::Set(d, 1.0f)), d, flags);
    for (int lane = 0; lane < kLanes; ++lane) {
      if (flags[lane] != 0.0f) convert_row(task, v * kLanes + lane, sums_before[lane]);
    }
  }
  return rescaled;
}

inline bool cast_any(const CastTask& task) {
  if (task.has_nan) {
    for (int lane = 0; lane < kGroup; ++lane) {
      task.rows->factor[task.first_query + lane] = 1.0f;
      convert_row(task, lane, task.rows->sum[task.first_query + lane]);
    }
    return true;
  }
  if (task.rule.wide()) {
    return task.rule.tail_correction ? cast_scores<true, true>(task)
                                     : cast_scores<true, false>(task);
  }
  return task.rule.tail_correction ? cast_scores<false, true>(task)
                                   : cast_scores<false, false>(task);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace openvc::cpu
HWY_AFTER_NAMESPACE();

#endif  // OPENVC_CPU_ATTENTION_SOFTMAX_INL_HPP_
