// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/check/tensor_rows.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "numerics/bits.hpp"
#include "numerics/half.hpp"
#include "unit/cpu/test_tensor.hpp"

// What the finite check of a device walks over, without a device.
namespace openvc::cuda {
namespace {

using test::Shape;
using test::TestTensor;

void expect_rows_in_order(const Shape& shape, const Shape& strides) {
  TestTensor tensor(ElementType::bfloat16, shape, strides);
  const TensorView view = tensor.view();
  const TensorRows rows = make_tensor_rows(view);
  ASSERT_EQ(rows.count(), shape[0] * shape[1] * shape[2]);
  ASSERT_EQ(rows.channels, shape[3]);
  std::int64_t row = 0;
  for (std::int64_t b = 0; b < shape[0]; ++b) {
    for (std::int64_t s = 0; s < shape[1]; ++s) {
      for (std::int64_t h = 0; h < shape[2]; ++h, ++row) {
        ASSERT_EQ(rows.row(row) - static_cast<const std::byte*>(view.data),
                  view.offset(b, s, h) * 2)
            << "row " << row;
      }
    }
  }
}

TEST(TensorRows, FollowTheIndicesWhateverTheStrides) {
  const Shape shape{2, 5, 3, 128};
  expect_rows_in_order(shape, contiguous_strides(shape));
  expect_rows_in_order(shape, {5 * 9 * 128, 9 * 128, 128, 1});  // slice of a fused projection
  expect_rows_in_order(shape, {5 * 3 * 128, 128, 5 * 128, 1});  // heads first
  expect_rows_in_order(shape, {5 * 3 * 131, -3 * 131, 131, 1});
  expect_rows_in_order(shape, {0, 128, 0, 1});  // expanded batch and heads
}

TEST(TensorRows, StridesOfSingletonAxesAreIgnored) {
  expect_rows_in_order({1, 7, 1, 128}, {987654321, 128, 123456789, 1});
  expect_rows_in_order({1, 1, 1, 128}, {1, 2, 3, 1});
}

TEST(TensorRows, OffsetsBeyond32Bits) {
  constexpr std::int64_t kTokens = 199'730;  // field case C02: 56 heads of a fused projection
  constexpr std::int64_t kPitch = 21'504;
  TensorView view;
  view.data = reinterpret_cast<const void*>(std::uintptr_t{1} << 40);  // never read
  view.shape = {1, kTokens, 56, 128};
  view.strides = {kTokens * kPitch, kPitch, 128, 1};
  const TensorRows rows = make_tensor_rows(view);
  const std::int64_t last = (kTokens - 1) * 56 + 55;
  EXPECT_EQ(rows.row(last) - rows.data, ((kTokens - 1) * kPitch + 55 * 128) * 2);
}

TEST(ExponentMask, IsSetInNonFiniteNumbersAlone) {
  for (std::uint32_t bits = 0; bits <= 0xFFFFu; ++bits) {
    const auto word = static_cast<std::uint16_t>(bits);
    const auto is_marked = [&](ElementType type) {
      return (bits & exponent_mask(type)) == exponent_mask(type);
    };
    ASSERT_EQ(is_marked(ElementType::bfloat16),
              !numerics::is_finite(numerics::bfloat16_to_float(word)))
        << bits;
    ASSERT_EQ(is_marked(ElementType::float16), !numerics::is_finite(numerics::half_to_float(word)))
        << bits;
  }
  constexpr std::uint32_t kMask = exponent_mask(ElementType::float32);
  using Limits = std::numeric_limits<float>;
  for (const float finite : {0.0f, Limits::max(), -Limits::max(), Limits::denorm_min()}) {
    EXPECT_NE(numerics::float_bits(finite) & kMask, kMask);
  }
  for (const float bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
    EXPECT_EQ(numerics::float_bits(bad) & kMask, kMask);
  }
}

}  // namespace
}  // namespace openvc::cuda
