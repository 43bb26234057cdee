// SPDX-License-Identifier: BSD-3-Clause
// How the attention kernel stores and multiplies operands. Included once per instruction set.
#if defined(OPENVC_CPU_ATTENTION_WORDS_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPENVC_CPU_ATTENTION_WORDS_INL_HPP_
#undef OPENVC_CPU_ATTENTION_WORDS_INL_HPP_
#else
#define OPENVC_CPU_ATTENTION_WORDS_INL_HPP_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "cpu/matrix_tile-inl.hpp"
#include "cpu/vector_e4m3-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace openvc::cpu {
namespace HWY_NAMESPACE {
namespace {

/// 1.5 * 2^23: a sum with this number is rounded to an integer, to nearest even, which then stands
/// in the low bits of the mantissa.
inline constexpr float kIntegerGrid = 0x1.8p23f;

/// One element per word, binary32.
struct FloatWords : FloatDot<FloatTag> {
  static constexpr int kWordElements = 1;

  static HWY_INLINE void decode(const std::uint8_t* codes, int count, Word* words,
                                hn::Mask<FloatTag>& nan) {
    const WordTag du;
    const hn::Rebind<std::uint8_t, WordTag> bytes;
    for (int i = 0; i < count; i += kLanes) {
      hn::Store(decode_codes(hn::PromoteTo(du, hn::LoadU(bytes, codes + i)), nan), FloatTag(),
                words + i);
    }
  }

  /// Probabilities of one key from their codes on the integer grid; 0 <= code <= kPeakCode.
  static HWY_INLINE void store_probabilities(const FloatVector (&grid)[kWordElements], Word* words,
                                             FloatVector& sum) {
    const FloatTag d;
    const WordTag du;
    const auto code = hn::Sub(grid[0], hn::Set(d, kIntegerGrid));
    const auto normal = hn::BitCast(
        d, hn::Add(hn::ShiftLeft<20>(hn::BitCast(du, grid[0])), hn::Set(du, 120u << 23)));
    const auto subnormal = hn::Mul(code, hn::Set(d, numerics::kE4m3MinSubnormal));
    const auto value = hn::IfThenElse(hn::Lt(code, hn::Set(d, 8.0f)), subnormal, normal);
    hn::Store(value, d, words);
    sum = hn::Add(sum, value);
  }

  static HWY_INLINE void store_element(Word* word, int /*element*/, float value) { *word = value; }
};

#ifdef OPENVC_CPU_AVX512_BF16
/// Two neighbouring elements per word, BF16; the lower half is the first one.
struct Bf16Words {
  using Word = std::uint32_t;
  using Vector = FloatVector;
  using WordVector = hn::Vec<WordTag>;
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(FloatTag()));
  static constexpr int kWordElements = 2;
  // BF16 of an E4M3 magnitude: its bits shifted by 4, with the exponent bias 127 instead of 7.
  static constexpr std::int16_t kRebase = (127 - 7) << 7;

  static HWY_INLINE WordVector load(const Word* words) { return hn::Load(WordTag(), words); }
  static HWY_INLINE WordVector broadcast(Word word) { return hn::Set(WordTag(), word); }
  static HWY_INLINE Vector multiply_add(Vector sum, WordVector a, WordVector b) {
    return Vector{_mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(a.raw),
                                   reinterpret_cast<__m512bh>(b.raw))};
  }

  /// BF16 of 32 codes without sign, all below 128; the code of NaN gives 480.
  static HWY_INLINE __m512i decode_magnitudes(__m512i codes) {
    // BF16 of k * 2^-9, the values of the codes below 8.
    const __m512i subnormals = _mm512_castsi128_si512(
        _mm_setr_epi16(0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60));
    const __m512i normals =
        _mm512_add_epi16(_mm512_slli_epi16(codes, 4), _mm512_set1_epi16(kRebase));
    const __mmask32 small = _mm512_cmplt_epi16_mask(codes, _mm512_set1_epi16(8));
    return _mm512_mask_permutexvar_epi16(normals, small, codes, subnormals);
  }

  static HWY_INLINE void decode(const std::uint8_t* codes, int count, Word* words,
                                hn::Mask<FloatTag>& nan) {
    __mmask32 any_nan = 0;
    for (int i = 0; i < count; i += 2 * kLanes) {
      const __m512i wide =
          _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + i)));
      const __m512i magnitudes = _mm512_and_si512(wide, _mm512_set1_epi16(0x7F));
      const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(magnitudes, _mm512_set1_epi16(0x7F));
      const __m512i signs = _mm512_slli_epi16(_mm512_xor_si512(wide, magnitudes), 8);
      const __m512i values =
          _mm512_mask_mov_epi16(decode_magnitudes(magnitudes), is_nan, _mm512_set1_epi16(0x7FC0));
      _mm512_store_si512(words + i / 2, _mm512_or_si512(values, signs));
      any_nan |= is_nan;
    }
    if (any_nan != 0) nan = hn::FirstN(FloatTag(), 1);
  }

  static HWY_INLINE void store_probabilities(const FloatVector (&grid)[kWordElements], Word* words,
                                             FloatVector& sum) {
    const WordTag du;
    const auto second = hn::ShiftLeft<16>(hn::BitCast(du, grid[1]));
    const __m512i codes =
        _mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_castps_si512(grid[0].raw), second.raw);
    const WordVector values{decode_magnitudes(codes)};
    hn::Store(values, du, words);
    const Word ones = 0x3F80'3F80u;
    sum = multiply_add(sum, values, broadcast(ones));
  }

  static HWY_INLINE void store_element(Word* word, int element, float value) {
    const std::uint32_t bits = numerics::float_to_bfloat16(value);
    const int shift = 16 * element;
    *word = (*word & ~(0xFFFFu << shift)) | (bits << shift);
  }
};
using Words = Bf16Words;
#else
using Words = FloatWords;
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace openvc::cpu
HWY_AFTER_NAMESPACE();

#endif  // OPENVC_CPU_ATTENTION_WORDS_INL_HPP_
