// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/ptx/mma.cuh"
#include "machine/rounding.hpp"
#include "numerics/e4m3.hpp"
#include "run_kernel.hpp"

// mma m16n8k32 of E4M3 against sums of binary64, element by element where PTX's figures put them.
namespace openvc::model {
namespace {

constexpr int kRows = 16;
constexpr int kColumns = 8;
constexpr int kDepth = 32;

/// Codes of numbers of all sizes below 2^5, without an order.
std::uint8_t code(int matrix, int i, int k) {
  auto seed = static_cast<std::uint32_t>((matrix * 64 + i) * 64 + k + 1);
  seed = (seed * 2654435761u) ^ (seed << 7);
  return static_cast<std::uint8_t>((seed >> 30 & 1u) << 7 | (seed >> 9) % 0x60);
}
double a(int i, int k) { return numerics::kE4m3Values[code(0, i, k)]; }
double b(int k, int n) { return numerics::kE4m3Values[code(1, n, k)]; }
float start(int i, int n) { return static_cast<float>(i - 3 * n) * 0.25f; }

double exact(int i, int n) {
  double sum = double{start(i, n)};
  for (int k = 0; k < kDepth; ++k) sum += a(i, k) * b(k, n);
  return sum;
}

/// Four codes of a row from k on; of A or, by column, of B.
std::uint32_t word(int matrix, int i, int k) {
  std::uint32_t bits = 0;
  for (int byte = 0; byte < 4; ++byte) bits |= std::uint32_t{code(matrix, i, k + byte)} << 8 * byte;
  return bits;
}

/// What a lane holds: PTX ISA 9.0, 9.7.14.5.9, figures of the fragments of .m16n8k32.
struct Fragments {
  int group = lane() / 4;
  int quad = lane() % 4;
  std::uint32_t left[4] = {word(0, group, 4 * quad), word(0, group + 8, 4 * quad),
                           word(0, group, 4 * quad + 16), word(0, group + 8, 4 * quad + 16)};
  std::uint32_t right[2] = {word(1, group, 4 * quad), word(1, group, 4 * quad + 16)};

  [[nodiscard]] int row(int i) const { return group + 8 * (i / 2); }
  [[nodiscard]] int column(int i) const { return 2 * quad + i % 2; }
};

std::size_t place(int i, int n) { return static_cast<std::size_t>(i * kColumns + n); }

TEST(ModelMma, E4m3WithSumsOfBinary32) {
  std::array<float, std::size_t{kRows} * kColumns> d{};
  const auto kernel = [&] {
    const Fragments mine;
    float sums[4];
    for (int i = 0; i < 4; ++i) sums[i] = start(mine.row(i), mine.column(i));
    cuda::ptx::mma_m16n8k32_e4m3(sums, mine.left, mine.right[0], mine.right[1]);
    for (int i = 0; i < 4; ++i) d[place(mine.row(i), mine.column(i))] = sums[i];
  };
  ASSERT_EQ(fault_of(32, kernel), "");
  for (int i = 0; i < kRows; ++i) {
    for (int n = 0; n < kColumns; ++n) {
      EXPECT_EQ(d[place(i, n)], static_cast<float>(exact(i, n))) << i << " " << n;
    }
  }
}

TEST(ModelMma, E4m3WithSumsOfBinary16) {
  std::array<std::uint16_t, std::size_t{kRows} * kColumns> d{};
  const auto kernel = [&] {
    const Fragments mine;
    std::uint32_t sums[2] = {};
    for (int i = 0; i < 4; ++i) {
      const std::uint16_t half = numerics::float_to_half(start(mine.row(i), mine.column(i)));
      sums[i / 2] |= std::uint32_t{half} << 16 * (i % 2);
    }
    cuda::ptx::mma_m16n8k32_e4m3(sums, mine.left, mine.right[0], mine.right[1]);
    for (int i = 0; i < 4; ++i) {
      d[place(mine.row(i), mine.column(i))] =
          static_cast<std::uint16_t>(sums[i / 2] >> 16 * (i % 2));
    }
  };
  ASSERT_EQ(fault_of(32, kernel), "");
  for (int i = 0; i < kRows; ++i) {
    for (int n = 0; n < kColumns; ++n) {
      EXPECT_EQ(d[place(i, n)], double_to_half(exact(i, n))) << i << " " << n;
    }
  }
}

}  // namespace
}  // namespace openvc::model
