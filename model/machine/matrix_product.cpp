// SPDX-License-Identifier: BSD-3-Clause
#include "machine/matrix_product.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "numerics/e4m3.hpp"

namespace openvc::model {
namespace {

double decode(std::byte code) { return numerics::kE4m3Values[std::to_integer<std::size_t>(code)]; }

/// B as numbers, k outermost. Warps share operands: the last ones are kept.
const std::vector<double>& decoded(std::span<const std::byte> bytes) {
  struct Entry {
    std::vector<std::byte> bytes;
    std::vector<double> numbers;
  };
  constexpr std::size_t kEntries = 8;
  static thread_local std::vector<Entry> entries(kEntries);
  static thread_local std::size_t next = 0;
  for (const Entry& entry : entries) {
    if (entry.bytes.size() == bytes.size() &&
        std::memcmp(entry.bytes.data(), bytes.data(), bytes.size()) == 0) {
      return entry.numbers;
    }
  }
  Entry& entry = entries[next++ % kEntries];
  entry.bytes.assign(bytes.begin(), bytes.end());
  const std::size_t columns = bytes.size() / kProductDepth;
  entry.numbers.resize(bytes.size());
  for (std::size_t n = 0; n < columns; ++n) {
    for (std::size_t k = 0; k < kProductDepth; ++k) {
      entry.numbers[k * columns + n] = decode(bytes[n * kProductDepth + k]);
    }
  }
  return entry.numbers;
}

}  // namespace

std::vector<double> exact_products(std::span<const std::byte> a, std::span<const std::byte> b) {
  // Codes are multiples of 2^-9 below 2^9: 32 products need 41 bits.
  constexpr int kRows = 2;  // as many sums as a processor has registers for
  constexpr int kColumns = 8;
  const std::size_t columns = b.size() / kProductDepth;
  const double* right = decoded(b).data();
  double left[kProductRows][kProductDepth];
  for (std::size_t i = 0; i < a.size(); ++i) {
    left[i / kProductDepth][i % kProductDepth] = decode(a[i]);
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
