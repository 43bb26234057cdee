// SPDX-License-Identifier: BSD-3-Clause
#include "machine/warp_instructions.hpp"

#include <cstring>

#include "machine/access.hpp"
#include "machine/rounding.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"

namespace openvc::model {
namespace {

constexpr int kRows = 16;
constexpr int kColumns = 8;
constexpr int kDepth = 32;
constexpr int kBytes = 4;  // of a register

template <class Operand>
Operand& operand(const Operands& lanes, int lane) {
  return *static_cast<Operand*>(lanes.at(static_cast<std::size_t>(lane)));
}

double decode(std::uint32_t word, int byte) {
  return numerics::kE4m3Values[word >> (8 * byte) & 0xFF];
}

/// Calls finish(sum so far, exact product) for every element of D; `sum` is what a lane holds.
template <class Sum, class Finish>
void multiply(const Operands& lanes, const Finish& finish) {
  double a[kRows][kDepth];
  double b[kDepth][kColumns];
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const auto& mine = operand<WarpProduct>(lanes, lane);
    const int group = lane / 4;
    for (int half = 0; half < 2; ++half) {
      const int first = kBytes * (lane % 4) + kDepth / 2 * half;
      for (int i = 0; i < kBytes; ++i) {
        a[group][first + i] = decode(mine.a[2 * half], i);
        a[group + 8][first + i] = decode(mine.a[2 * half + 1], i);
        b[first + i][group] = decode(mine.b[half], i);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    double products[kColumns] = {};
    for (int k = 0; k < kDepth; ++k) {
      for (int n = 0; n < kColumns; ++n) products[n] += a[row][k] * b[k][n];
    }
    for (int n = 0; n < kColumns; ++n) {
      std::byte* d = operand<WarpProduct>(lanes, row % 8 * 4 + n / 2).d;
      const int place = row / 8 * 2 + n % 2;
      Sum sum;
      std::memcpy(&sum, d + place * sizeof(Sum), sizeof(Sum));
      sum = finish(sum, products[n]);
      std::memcpy(d + place * sizeof(Sum), &sum, sizeof(Sum));
    }
  }
}

}  // namespace

void multiply_e4m3_f32(const Operands& lanes) {
  multiply<float>(lanes, [](float sum, double product) {
    return static_cast<float>(static_cast<double>(sum) + product);
  });
}

void multiply_e4m3_f16(const Operands& lanes) {
  multiply<std::uint16_t>(lanes, [](std::uint16_t sum, double product) {
    return double_to_half(static_cast<double>(numerics::half_to_float(sum)) + product);
  });
}

void load_matrices(const Operands& lanes) {
  constexpr std::uint32_t kRowBytes = 16;
  for (int lane = 0; lane < kWarpLanes; ++lane) {
    const std::uint32_t start = operand<MatrixLoad>(lanes, lane).address;
    if (start % kRowBytes != 0) throw Fault("ldmatrix: a row that starts at no multiple of 16");
    const void* row = shared_pointer(start, kRowBytes);
    observe_shared({row, kRowBytes, false});
    std::uint32_t words[4];
    std::memcpy(words, row, sizeof(words));
    for (int quad = 0; quad < 4; ++quad) {
      operand<MatrixLoad>(lanes, lane % 8 * 4 + quad).d[lane / 8] = words[quad];
    }
  }
}

}  // namespace openvc::model
