// SPDX-License-Identifier: BSD-3-Clause
#include "machine/matrix_product.hpp"

#include <algorithm>

#include "machine/decoded_operand.hpp"
#include "numerics/e4m3.hpp"

namespace openvc::model {
namespace {

constexpr int kColumns = 8;  // that loops take at a time, side by side

/// Numbers, k outermost.
struct Numbers {
  std::vector<double> values;

  Numbers() = default;
  explicit Numbers(std::span<const std::byte> bytes) : values(bytes.size()) {
    const std::size_t columns = bytes.size() / kProductDepth;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      values[i % kProductDepth * columns + i / kProductDepth] =
          numerics::kE4m3Values[std::to_integer<std::size_t>(bytes[i])];
    }
  }
};

}  // namespace

std::vector<double> exact_products(std::span<const std::byte> a, std::span<const std::byte> b) {
  // Codes are multiples of 2^-9 below 2^9: 32 products need 41 bits.
  constexpr int kRows = 2;  // as many sums as a processor has registers for
  const std::size_t columns = b.size() / kProductDepth;
  const double* right = decoded<Numbers>(b).values.data();
  double left[kProductRows][kProductDepth];
  for (std::size_t i = 0; i < a.size(); ++i) {
    left[i / kProductDepth][i % kProductDepth] =
        numerics::kE4m3Values[std::to_integer<std::size_t>(a[i])];
  }
  std::vector<double> result(kProductRows * columns);
  for (std::size_t first = 0; first < columns; first += kColumns) {
    for (std::size_t row = 0; row < kProductRows; row += kRows) {
      double sums[kRows][kColumns] = {};
      for (std::size_t k = 0; k < kProductDepth; ++k) {
        const double* b_row = right + k * columns + first;
        for (std::size_t i = 0; i < kRows; ++i) {
          for (std::size_t n = 0; n < kColumns; ++n) sums[i][n] += left[row + i][k] * b_row[n];
        }
      }
      for (std::size_t i = 0; i < kRows; ++i) {
        std::copy_n(sums[i], kColumns, result.data() + (row + i) * columns + first);
      }
    }
  }
  return result;
}

}  // namespace openvc::model
