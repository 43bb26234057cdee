// SPDX-License-Identifier: BSD-3-Clause
// The micro-kernel of all matrix products. Included once per instruction set, as Highway does it.
#if defined(OPENVC_CPU_MATRIX_TILE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef OPENVC_CPU_MATRIX_TILE_INL_HPP_
#undef OPENVC_CPU_MATRIX_TILE_INL_HPP_
#else
#define OPENVC_CPU_MATRIX_TILE_INL_HPP_
#endif

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace openvc::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Registers of the micro-kernel: kTileRows x kTileVectors accumulators, kTileVectors of B, one of
// A. Sixteen accumulators hide the latency of two multiply-adds a cycle and make 24 loads and
// broadcasts feed 32 of them; instruction sets with 16 registers have room for eight.
inline constexpr int kTileRows = 4;
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3
inline constexpr int kTileVectors = 2;
#else
inline constexpr int kTileVectors = 4;
#endif

/// Arithmetic on plain floating-point numbers.
template <class Tag>
struct FloatDot {
  using Word = hn::TFromD<Tag>;
  using Vector = hn::Vec<Tag>;
  using WordVector = hn::Vec<Tag>;
  static constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag()));
  static HWY_INLINE WordVector load(const Word* words) { return hn::Load(Tag(), words); }
  static HWY_INLINE WordVector broadcast(Word word) { return hn::Set(Tag(), word); }
  static HWY_INLINE Vector multiply_add(Vector sum, WordVector a, WordVector b) {
    return hn::MulAdd(a, b, sum);
  }
};

/// How an operand walks through memory, in words.
struct TileStrides {
  std::size_t a_row;   // from one row of A to the next
  std::size_t a_step;  // along the contraction
  std::size_t b_step;
};

/// sums[r][v] += sum over k < steps of A[r][k] * B[k][v]; B is aligned to whole vectors.
template <class Dot>
HWY_INLINE void multiply_tile(const typename Dot::Word* HWY_RESTRICT a,
                              const typename Dot::Word* HWY_RESTRICT b, std::size_t steps,
                              TileStrides strides,
                              typename Dot::Vector (&sums)[kTileRows][kTileVectors]) {
  for (std::size_t k = 0; k < steps; ++k) {
    typename Dot::WordVector column[kTileVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kTileVectors; ++v) column[v] = Dot::load(b + v * Dot::kLanes);
    HWY_UNROLL(4)
    for (int r = 0; r < kTileRows; ++r) {
      const auto element = Dot::broadcast(a[r * strides.a_row]);
      HWY_UNROLL(4)
      for (int v = 0; v < kTileVectors; ++v) {
        sums[r][v] = Dot::multiply_add(sums[r][v], element, column[v]);
      }
    }
    a += strides.a_step;
    b += strides.b_step;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace openvc::cpu
HWY_AFTER_NAMESPACE();

#endif  // OPENVC_CPU_MATRIX_TILE_INL_HPP_
