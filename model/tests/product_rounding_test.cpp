// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <ios>
#include <span>
#include <string>
#include <vector>

#include "machine/hopper_product.hpp"
#include "machine/matrix_product.hpp"
#include "numerics/half.hpp"

// The rule by which the model adds products of wgmma, against the sums of an H200, bit for bit.
// benchmarks/cuda/product_rounding.cu has written them on the card and describes the file.
namespace openvc::model {
namespace {

template <class T>
std::vector<T> take(std::ifstream& file, int count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
  return values;
}

/// The codes of a k-step, of rows of `steps` of them.
std::vector<std::byte> step_of(const std::vector<std::byte>& codes, int step, int steps) {
  std::vector<std::byte> result;
  const auto width = static_cast<std::size_t>(steps * kProductDepth);
  for (std::size_t row = 0; row < codes.size(); row += width) {
    const auto first = codes.begin() + static_cast<std::ptrdiff_t>(row) + step * kProductDepth;
    result.insert(result.end(), first, first + kProductDepth);
  }
  return result;
}

bool is_same(float mine, float theirs) {
  return numerics::float_bits(mine) == numerics::float_bits(theirs);
}

/// `expected`: [k-step][row][column].
int differing_sums(const std::vector<std::byte>& a, const std::vector<std::byte>& b, int steps,
                   Product::Sum type, const std::vector<float>& expected) {
  std::vector<float> sums(expected.size() / static_cast<std::size_t>(steps));
  int differing = 0;
  auto theirs = expected.begin();
  for (int step = 0; step < steps; ++step) {
    add_hopper_products(step_of(a, step, steps), step_of(b, step, steps), type, sums);
    for (const float mine : sums) differing += is_same(mine, *theirs++) ? 0 : 1;
  }
  return differing;
}

TEST(ModelProductRounding, EqualsAnH200) {
  const std::string path = OPENVC_REPOSITORY_DIRECTORY "/model/tests/h200_product_sums.bin";
  std::ifstream file(path, std::ios::binary);
  const auto header = take<std::int32_t>(file, 4);
  ASSERT_TRUE(file) << path;
  const auto [tiles, rows, columns, steps] = std::array{header[0], header[1], header[2], header[3]};
  ASSERT_EQ(rows, kProductRows);
  for (int tile = 0; tile < tiles; ++tile) {
    const auto a = take<std::byte>(file, rows * kProductDepth * steps);
    const auto b = take<std::byte>(file, columns * kProductDepth * steps);
    std::vector<float> halves;
    for (const std::uint16_t sum : take<std::uint16_t>(file, rows * columns * steps)) {
      halves.push_back(numerics::half_to_float(sum));
    }
    const auto floats = take<float>(file, rows * columns * steps);
    ASSERT_TRUE(file) << path << " ends in tile " << tile;
    EXPECT_EQ(differing_sums(a, b, steps, Product::Sum::binary16, halves), 0) << "tile " << tile;
    EXPECT_EQ(differing_sums(a, b, steps, Product::Sum::binary32, floats), 0) << "tile " << tile;
  }
}

}  // namespace
}  // namespace openvc::model
