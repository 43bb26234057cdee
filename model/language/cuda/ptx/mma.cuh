// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <cstring>

#include "machine/machine.hpp"
#include "machine/rounding.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"

// Products of one warp. Sums of binary32 and binary16 are rounded once, from binary64: tensor cores
// add in an order of their own, which tests may not depend on.
namespace openvc::cuda::ptx {

template <class Sum>
struct MmaOperands {
  Sum* d;
  const std::uint32_t* a;
  std::uint32_t b[2];
};

/// d += a b; `element(word, i)` is element i of a register that holds kEach of them.
template <class Sum, class Exact, int kEach, class Element>
void multiply_fragments(const model::Operands& lanes, const Element& element) {
  const auto operands = [&](int group, int quad) -> MmaOperands<Sum>& {
    return *static_cast<MmaOperands<Sum>*>(lanes.at(static_cast<std::size_t>(4 * group + quad)));
  };
  constexpr int kDepth = 8 * kEach;
  Exact a[16][kDepth];
  Exact b[8][kDepth];
  for (int group = 0; group < 8; ++group) {
    for (int quad = 0; quad < 4; ++quad) {
      const auto& mine = operands(group, quad);
      for (int i = 0; i < kEach; ++i) {
        for (int half = 0; half < 2; ++half) {
          const int k = kEach * quad + i + 4 * kEach * half;
          a[group][k] = element(mine.a[2 * half], i);
          a[group + 8][k] = element(mine.a[2 * half + 1], i);
          b[group][k] = element(mine.b[half], i);
        }
      }
    }
  }
  for (int group = 0; group < 8; ++group) {
    for (int quad = 0; quad < 4; ++quad) {
      Sum* d = operands(group, quad).d;
      for (int i = 0; i < 4; ++i) {
        const Exact* row = a[group + 8 * (i / 2)];
        const Exact* column = b[2 * quad + i % 2];
        Exact sum = static_cast<Exact>(d[i]);
        for (int k = 0; k < kDepth; ++k) sum += row[k] * column[k];
        d[i] = static_cast<Sum>(sum);
      }
    }
  }
}

inline void mma_m16n8k16_bf16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                              std::uint32_t b1) {
  MmaOperands<float> mine{d, a, {b0, b1}};
  model::execute_together(0xFFFF'FFFFu, "mma.m16n8k16.bf16", &mine, [](const auto& lanes) {
    multiply_fragments<float, double, 2>(lanes, [](std::uint32_t word, int i) -> double {
      return numerics::bfloat16_to_float(static_cast<std::uint16_t>(word >> (16 * i)));
    });
  });
}

inline void mma_m16n8k16_f16(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                             std::uint32_t b1) {
  MmaOperands<float> mine{d, a, {b0, b1}};
  model::execute_together(0xFFFF'FFFFu, "mma.m16n8k16.f16", &mine, [](const auto& lanes) {
    multiply_fragments<float, double, 2>(lanes, [](std::uint32_t word, int i) -> double {
      return numerics::half_to_float(static_cast<std::uint16_t>(word >> (16 * i)));
    });
  });
}

inline void mma_m16n8k32_s8(std::int32_t (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                            std::uint32_t b1) {
  MmaOperands<std::int32_t> mine{d, a, {b0, b1}};
  model::execute_together(0xFFFF'FFFFu, "mma.m16n8k32.s8", &mine, [](const auto& lanes) {
    multiply_fragments<std::int32_t, std::int64_t, 4>(
        lanes, [](std::uint32_t word, int i) -> std::int64_t {
          return static_cast<std::int8_t>(word >> (8 * i));
        });
  });
}

inline double e4m3_element(std::uint32_t word, int i) {
  return numerics::kE4m3Values[word >> (8 * i) & 0xFF];
}

inline void mma_m16n8k32_e4m3(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                              std::uint32_t b1) {
  MmaOperands<float> mine{d, a, {b0, b1}};
  model::execute_together(0xFFFF'FFFFu, "mma.m16n8k32.e4m3.f32", &mine, [](const auto& lanes) {
    multiply_fragments<float, double, 4>(lanes, e4m3_element);
  });
}

/// A sum of binary16 among exact ones.
struct HalfSum {
  std::uint16_t bits = 0;

  HalfSum() = default;
  explicit HalfSum(double x) : bits(model::double_to_half(x)) {}
  explicit operator double() const { return numerics::half_to_float(bits); }
};

inline void mma_m16n8k32_e4m3(std::uint32_t (&d)[2], const std::uint32_t (&a)[4], std::uint32_t b0,
                              std::uint32_t b1) {
  HalfSum sums[4];
  static_assert(sizeof(sums) == sizeof(d));
  std::memcpy(sums, d, sizeof(d));
  MmaOperands<HalfSum> mine{sums, a, {b0, b1}};
  model::execute_together(0xFFFF'FFFFu, "mma.m16n8k32.e4m3.f16", &mine, [](const auto& lanes) {
    multiply_fragments<HalfSum, double, 4>(lanes, e4m3_element);
  });
  std::memcpy(d, sums, sizeof(d));
}

struct LdmatrixOperands {
  std::uint32_t* d;
  std::uint32_t address;
};

inline void ldmatrix_x4(std::uint32_t (&d)[4], std::uint32_t address) {
  LdmatrixOperands mine{d, address};
  model::execute_together(0xFFFF'FFFFu, "ldmatrix.x4", &mine, [](const model::Operands& lanes) {
    const auto operands = [&](int lane) -> LdmatrixOperands& {
      return *static_cast<LdmatrixOperands*>(lanes.at(static_cast<std::size_t>(lane)));
    };
    for (int matrix = 0; matrix < 4; ++matrix) {
      for (int row = 0; row < 8; ++row) {
        const std::uint32_t start = operands(8 * matrix + row).address;
        if (start % 16 != 0) throw model::Fault("ldmatrix: a row that starts at no multiple of 16");
        const auto* words = static_cast<const std::uint32_t*>(model::shared_pointer(start, 16));
        for (int quad = 0; quad < 4; ++quad) operands(4 * row + quad).d[matrix] = words[quad];
      }
    }
  });
}

}  // namespace openvc::cuda::ptx
