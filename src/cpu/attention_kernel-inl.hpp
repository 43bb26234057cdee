// SPDX-License-Identifier: BSD-3-Clause
// The attention kernel of one instruction set. Included once per instruction set.
#if defined(OPENVC_CPU_ATTENTION_KERNEL_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPENVC_CPU_ATTENTION_KERNEL_INL_HPP_
#undef OPENVC_CPU_ATTENTION_KERNEL_INL_HPP_
#else
#define OPENVC_CPU_ATTENTION_KERNEL_INL_HPP_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "cpu/attention_kernel.hpp"
#include "cpu/attention_softmax-inl.hpp"
#include "cpu/attention_words-inl.hpp"
#include "cpu/matrix_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace openvc::cpu {
namespace HWY_NAMESPACE {
namespace {

static_assert(numerics::kQueryBlock % kGroup == 0);
static_assert(numerics::kKeyGroup % kTileRows == 0);

using Word = Words::Word;

inline const Word* words_of(const std::byte* bytes) { return reinterpret_cast<const Word*>(bytes); }

/// Asks for the words that the next tile broadcasts: short rows are no stream that the hardware
/// recognises, and a tile takes longer than the way from the L3 cache.
HWY_INLINE void prefetch_rows(const Word* rows, std::size_t count) {
  constexpr std::size_t kLineWords = kVectorAlignment / sizeof(Word);
  for (std::size_t i = 0; i < count; i += kLineWords) hwy::Prefetch(rows + i);
}

bool decode_rows(const std::uint8_t* codes, std::int64_t code_stride, int rows, int columns,
                 std::byte* words, std::int64_t row_bytes) {
  auto nan = hn::FirstN(FloatTag(), 0);
  for (int row = 0; row < rows; ++row) {
    Words::decode(codes + row * code_stride, columns,
                  reinterpret_cast<Word*>(words + row * row_bytes), nan);
  }
  return !hn::AllFalse(FloatTag(), nan);
}

void pack_query_words(const std::byte* rows, int columns, std::byte* queries) {
  const int row_words = columns / Words::kWordElements;
  auto* out = reinterpret_cast<Word*>(queries);
  for (int query = 0; query < kGroup; ++query) {
    const Word* row = words_of(rows) + query * row_words;
    for (int i = 0; i < row_words; ++i) out[i * kGroup + query] = row[i];
  }
}

/// Stores a tile of scores and takes their maximum.
template <bool kMasked>
HWY_INLINE void finish_scores(const ScoreTask& task, int key,
                              const FloatVector (&sums)[kTileRows][kTileVectors],
                              FloatVector (&maxima)[kTileVectors]) {
  const FloatTag d;
  for (int r = 0; r < kTileRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kTileVectors; ++v) {
      auto score = sums[r][v];
      if constexpr (kMasked) {
        const auto visible = hn::Load(IntTag(), task.visible + v * kLanes);
        const auto seen = hn::RebindMask(d, hn::Gt(visible, hn::Set(IntTag(), key + r)));
        score = hn::IfThenElse(seen, score, hn::Set(d, -numerics::infinity()));
      }
      maxima[v] = hn::Max(maxima[v], score);
      hn::Store(round_to_half(score), d, task.scores + (key + r) * kGroup + v * kLanes);
    }
  }
}

void score_group(const ScoreTask& task) {
  const FloatTag d;
  const auto steps = static_cast<std::size_t>(task.columns / Words::kWordElements);
  const Word* keys = words_of(task.keys);
  FloatVector maxima[kTileVectors];
  for (auto& maximum : maxima) maximum = hn::Set(d, -numerics::infinity());
  for (int key = 0; key < task.used_keys; key += kTileRows) {
    FloatVector sums[kTileRows][kTileVectors];
    for (auto& row : sums) {
      for (auto& sum : row) sum = hn::Zero(d);
    }
    const Word* rows = keys + static_cast<std::size_t>(key) * steps;
    prefetch_rows(rows + kTileRows * steps, kTileRows * steps);
    multiply_tile<Words>(rows, words_of(task.queries), steps,
                         {.a_row = steps, .a_step = 1, .b_step = kGroup}, sums);
    if (HWY_LIKELY(key + kTileRows <= task.fewest_visible)) {
      finish_scores<false>(task, key, sums, maxima);
    } else {
      finish_scores<true>(task, key, sums, maxima);
    }
  }
  for (int v = 0; v < kTileVectors; ++v) hn::Store(maxima[v], d, task.block_max + v * kLanes);
}

void accumulate_group(const ValueTask& task) {
  const FloatTag d;
  constexpr std::size_t kRowWords = numerics::kKeyBlock / Words::kWordElements;
  const auto steps = static_cast<std::size_t>(task.used_keys / Words::kWordElements);
  for (int channel = 0; channel < task.rows; channel += kTileRows) {
    float* out = task.accumulators + channel * kGroup;
    FloatVector sums[kTileRows][kTileVectors];
    for (auto& row : sums) {
      for (auto& sum : row) sum = hn::Zero(d);
    }
    const Word* rows = words_of(task.values) + static_cast<std::size_t>(channel) * kRowWords;
    prefetch_rows(rows + kTileRows * kRowWords, kTileRows * kRowWords);
    multiply_tile<Words>(rows, words_of(task.probabilities), steps,
                         {.a_row = kRowWords, .a_step = 1, .b_step = kGroup}, sums);
    for (int r = 0; r < kTileRows; ++r) {
      HWY_UNROLL(4)
      for (int v = 0; v < kTileVectors; ++v) {
        float* place = out + r * kGroup + v * kLanes;
        auto before = hn::Load(d, place);
        if (task.rescale != nullptr) {
          before = hn::Mul(before, hn::Load(d, task.rescale + v * kLanes));
        }
        hn::Store(hn::MulAdd(sums[r][v], hn::Load(d, task.weight + v * kLanes), before), d, place);
      }
    }
  }
}

/// x limited to +-limit; NaN passes.
HWY_INLINE FloatVector saturate_finite(FloatVector x, float limit) {
  const FloatTag d;
  const auto high = hn::Set(d, limit);
  const auto low = hn::Set(d, -limit);
  return hn::IfThenElse(hn::Gt(x, high), high, hn::IfThenElse(hn::Lt(x, low), low, x));
}

HWY_INLINE void store_as(FloatVector x, float* out) {
  hn::StoreU(saturate_finite(x, std::numeric_limits<float>::max()), FloatTag(), out);
}

struct Bfloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

HWY_INLINE void store_as(FloatVector x, Bfloat16* out) {
  const hn::Rebind<std::uint16_t, FloatTag> d16;
  const auto bits = bfloat16_bits(saturate_finite(x, numerics::kBfloat16Max));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(IntTag(), bits)), d16, &out->bits);
}

HWY_INLINE void store_as(FloatVector x, Float16* out) {
  const auto finite = saturate_finite(x, numerics::kHalfMax);
  if constexpr (kNativeHalf) {
    const hn::Rebind<hwy::float16_t, FloatTag> d16;
    const hn::Rebind<std::uint16_t, FloatTag> du16;
    hn::StoreU(hn::BitCast(du16, hn::DemoteTo(d16, finite)), du16, &out->bits);
  } else {
    alignas(kVectorAlignment) float values[kLanes];
    hn::Store(finite, FloatTag(), values);
    for (int i = 0; i < kLanes; ++i) out[i].bits = numerics::float_to_half(values[i]);
  }
}

/// From averages over axes of V, one query's accumulators, to averages over its channels.
inline void leave_axes(const OutputTask& task, int query, float share, float* channels) {
  const FloatTag d;
  constexpr int kVectors = numerics::kHeadDim / kLanes;
  FloatVector sums[kVectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (int axis = 0; axis < numerics::kHeadDim; ++axis) {
    float average = channels[axis];
    if (axis < numerics::kValueColumns) {
      average += task.accumulators[(numerics::kHeadDim + axis) * kGroup + query];
    }
    const auto scaled = hn::Set(d, average * share * task.value_scales[axis]);
    const float* row = task.basis + axis * numerics::kHeadDim;
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = hn::MulAdd(scaled, hn::LoadU(d, row + v * kLanes), sums[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) hn::Store(sums[v], d, channels + v * kLanes);
}

template <class Element>
void store_rows(const OutputTask& task) {
  const FloatTag d;
  auto* out = static_cast<Element*>(task.out);
  alignas(kVectorAlignment) float channels[numerics::kHeadDim];
  for (int query = 0; query < task.queries; ++query) {
    for (int c = 0; c < numerics::kHeadDim; ++c) {
      channels[c] = task.accumulators[c * kGroup + query];
    }
    // A row without keys has neither weights nor a mean to return.
    const bool empty = task.sum[query] == 0.0f;
    const float share = empty ? 0.0f : 1.0f / task.sum[query];
    if (task.basis != nullptr) {
      leave_axes(task, query, share, channels);
      for (int c = 0; c < numerics::kHeadDim; c += kLanes) {
        const auto value = hn::Add(hn::Load(d, channels + c), hn::LoadU(d, task.value_means + c));
        store_as(empty ? hn::Zero(d) : value, out + query * task.query_stride + c);
      }
      continue;
    }
    const auto inverse = hn::Set(d, share);
    for (int c = 0; c < numerics::kHeadDim; c += kLanes) {
      const auto mean = hn::LoadU(d, task.value_means + c);
      const auto weighted = hn::Mul(hn::Load(d, channels + c), inverse);
      const auto value = hn::MulAdd(weighted, hn::LoadU(d, task.value_scales + c), mean);
      store_as(empty ? hn::Zero(d) : value, out + query * task.query_stride + c);
    }
  }
}

void store_group(const OutputTask& task) {
  switch (task.type) {
    case ElementType::float32:
      return store_rows<float>(task);
    case ElementType::bfloat16:
      return store_rows<Bfloat16>(task);
    case ElementType::float16:
      return store_rows<Float16>(task);
  }
}

const AttentionKernel& kernel_of_this_target() {
  static const AttentionKernel kKernel = {
      .name = OPENVC_CPU_KERNEL_NAME,
      .word_elements = Words::kWordElements,
      .group = kGroup,
      .decode = decode_rows,
      .pack_queries = pack_query_words,
      .score = score_group,
      .cast = cast_any,
      .accumulate = accumulate_group,
      .store = store_group,
  };
  return kKernel;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace openvc::cpu
HWY_AFTER_NAMESPACE();

#endif  // OPENVC_CPU_ATTENTION_KERNEL_INL_HPP_
