// SPDX-License-Identifier: BSD-3-Clause
// Vector forms of the numeric contract. Included once per instruction set, as Highway does it.
#if defined(OPENVC_CPU_VECTOR_E4M3_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPENVC_CPU_VECTOR_E4M3_INL_HPP_
#undef OPENVC_CPU_VECTOR_E4M3_INL_HPP_
#else
#define OPENVC_CPU_VECTOR_E4M3_INL_HPP_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"

HWY_BEFORE_NAMESPACE();
namespace openvc::cpu {
namespace HWY_NAMESPACE {
// Two translation units may compile this namespace for different instruction sets.
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::ScalableTag<std::int32_t>;
using WordTag = hn::ScalableTag<std::uint32_t>;
using FloatVector = hn::Vec<FloatTag>;
using WordVector = hn::Vec<WordTag>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(FloatTag()));

// Highway emulates conversions to binary16 without the infinities that masked scores need.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
inline constexpr bool kNativeHalf = true;
#else
inline constexpr bool kNativeHalf = false;
#endif

/// Rounds to binary16, to nearest even, and returns binary32.
HWY_INLINE FloatVector round_to_half(FloatVector x) {
  const FloatTag d;
  if constexpr (kNativeHalf) {
    return hn::PromoteTo(d, hn::DemoteTo(hn::Rebind<hwy::float16_t, FloatTag>(), x));
  } else {
    // Normal range: drop 13 bits of the mantissa. Below, numbers are multiples of 2^-24: adding
    // and subtracting 1.5 * 2^-1 rounds to that grid.
    const WordTag du;
    const auto bits = hn::BitCast(du, x);
    const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(du, 1u));
    const auto rounded =
        hn::And(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x0FFFu))), hn::Set(du, 0xFFFF'E000u));
    const auto normal = hn::BitCast(d, rounded);
    const auto magnitude = hn::Abs(x);
    const auto grid = hn::Set(d, 0.75f);
    const auto subnormal = hn::CopySign(hn::Sub(hn::Add(magnitude, grid), grid), x);
    auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0x1p-14f)), subnormal, normal);
    const auto infinite = hn::CopySign(hn::Set(d, numerics::infinity()), x);
    result = hn::IfThenElse(hn::Ge(magnitude, hn::Set(d, 65520.0f)), infinite, result);
    return hn::IfThenElse(hn::Eq(x, x), result, x);
  }
}

/// Values of E4M3 codes, one code per lane, as binary32 bits. `nan` collects the lanes that are
/// NaN.
HWY_INLINE FloatVector decode_codes(WordVector codes, hn::Mask<FloatTag>& nan) {
  const FloatTag d;
  const IntTag di;
  const WordTag du;
  const auto magnitude = hn::And(codes, hn::Set(du, 0x7Fu));
  const auto sign = hn::ShiftLeft<24>(hn::Xor(codes, magnitude));
  const auto normal =
      hn::BitCast(d, hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(du, 120u << 23)));
  const auto subnormal = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)),
                                 hn::Set(d, numerics::kE4m3MinSubnormal));
  const auto is_normal = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 7));
  const auto is_nan = hn::RebindMask(d, hn::Eq(magnitude, hn::Set(du, numerics::kE4m3Nan)));
  auto value = hn::IfThenElse(hn::RebindMask(d, is_normal), normal, subnormal);
  value = hn::IfThenElse(is_nan, hn::Set(d, numerics::quiet_nan()), value);
  nan = hn::Or(nan, is_nan);
  return hn::BitCast(d, hn::Or(hn::BitCast(du, value), sign));
}

/// BF16 bits in the lower half of every lane; to nearest even, NaN stays NaN.
HWY_INLINE WordVector bfloat16_bits(FloatVector x) {
  const WordTag du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu))));
  const auto quieted = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x40u));
  return hn::IfThenElse(hn::RebindMask(du, hn::Eq(x, x)), rounded, quieted);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace openvc::cpu
HWY_AFTER_NAMESPACE();

#endif  // OPENVC_CPU_VECTOR_E4M3_INL_HPP_
