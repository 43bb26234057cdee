// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "machine/machine.hpp"
#include "machine/warp_instructions.hpp"
#include "numerics/half.hpp"

// Products of one warp. Sums of binary32 are rounded once, from binary64: tensor cores add in an
// order of their own, which tests may not depend on.
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

inline void mma_m16n8k32_e4m3(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                              std::uint32_t b1) {
  model::WarpProduct mine{reinterpret_cast<std::byte*>(d), a, {b0, b1}};
  model::execute_together(0xFFFF'FFFFu, "mma.m16n8k32.e4m3.f32", &mine, model::multiply_e4m3_f32);
}

inline void mma_m16n8k32_e4m3(std::uint32_t (&d)[2], const std::uint32_t (&a)[4], std::uint32_t b0,
                              std::uint32_t b1) {
  model::WarpProduct mine{reinterpret_cast<std::byte*>(d), a, {b0, b1}};
  model::execute_together(0xFFFF'FFFFu, "mma.m16n8k32.e4m3.f16", &mine, model::multiply_e4m3_f16);
}

inline void ldmatrix_x4(std::uint32_t (&d)[4], std::uint32_t address) {
  model::MatrixLoad mine{d, address};
  model::execute_together(0xFFFF'FFFFu, "ldmatrix.x4", &mine, model::load_matrices);
}

}  // namespace openvc::cuda::ptx
