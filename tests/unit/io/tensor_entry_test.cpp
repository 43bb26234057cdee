// SPDX-License-Identifier: BSD-3-Clause
#include "io/tensor_entry.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "io/stored_type.hpp"
#include "openvc/status.hpp"
#include "unit/io/sample_files.hpp"

namespace openvc::io {
namespace {

constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int64_t>::max();

std::optional<std::uint64_t> byte_count(std::initializer_list<std::int64_t> shape,
                                        StoredType type) {
  return checked_byte_count(std::span(shape.begin(), shape.size()), type);
}

TEST(StoredType, RowsAgreeWithTheirTypes) {
  EXPECT_EQ(stored_size(StoredType::float8_e4m3), 1u);
  EXPECT_EQ(stored_size(StoredType::bfloat16), 2u);
  EXPECT_EQ(stored_size(StoredType::complex64), 8u);
  EXPECT_EQ(stored_name(StoredType::float16), "float16");
}

TEST(StoredType, OnlyAttentionTypesConvert) {
  EXPECT_EQ(attention_element_type(StoredType::bfloat16), ElementType::bfloat16);
  EXPECT_EQ(attention_element_type(StoredType::float16), ElementType::float16);
  EXPECT_EQ(attention_element_type(StoredType::float32), ElementType::float32);
  EXPECT_EQ(attention_element_type(StoredType::int16), std::nullopt);
}

TEST(CheckedByteCount, MultipliesTheShape) {
  EXPECT_EQ(byte_count({}, StoredType::float32), 4u);
  EXPECT_EQ(byte_count({2, 3, 4}, StoredType::bfloat16), 48u);
  EXPECT_EQ(byte_count({5, 0, 7}, StoredType::float64), 0u);
  EXPECT_EQ(byte_count({kMaxExtent}, StoredType::uint8), std::uint64_t{kMaxExtent});
}

TEST(CheckedByteCount, RefusesOverflowAndNegativeExtents) {
  EXPECT_EQ(byte_count({kMaxExtent}, StoredType::float16), std::nullopt);
  EXPECT_EQ(byte_count({std::int64_t{1} << 32, std::int64_t{1} << 32}, StoredType::uint8),
            std::nullopt);
  EXPECT_EQ(byte_count({std::int64_t{1} << 62, 4}, StoredType::uint8), std::nullopt);
  EXPECT_EQ(byte_count({-1}, StoredType::uint8), std::nullopt);
  EXPECT_EQ(byte_count({-1, -1}, StoredType::uint8), std::nullopt);
}

TEST(CheckedByteCount, ZeroDoesNotHideOverflow) {
  EXPECT_EQ(byte_count({0, kMaxExtent, kMaxExtent}, StoredType::uint8), std::nullopt);
  EXPECT_EQ(byte_count({kMaxExtent, kMaxExtent, 0}, StoredType::uint8), std::nullopt);
}

TEST(ShapeText, ShortensLongShapes) {
  EXPECT_EQ(shape_text({}), "[]");
  EXPECT_EQ(shape_text(std::vector<std::int64_t>{2, 3}), "[2, 3]");
  EXPECT_EQ(shape_text(std::vector<std::int64_t>(20, 1)), "[1, 1, 1, 1, 1, 1, 1, 1, ...]");
}

}  // namespace
}  // namespace openvc::io
