// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "openvc/tensor_view.hpp"

namespace openvc::io {

/// Element types that a tensor file may hold: more than attention accepts, because a file is opened
/// as a whole, whatever lies beside the tensors that the caller wants.
enum class StoredType : std::uint8_t {
  boolean,
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  uint64,
  int64,
  float8_e4m3,
  float8_e5m2,
  float8_e8m0,
  float16,
  bfloat16,
  float32,
  float64,
  complex64,
  unknown,  // a type that this program does not know, of a tensor that nobody may need
};

/// Everything that the file formats know about an element type, in one row.
struct StoredTypeInfo {
  StoredType type;
  std::uint8_t size;                  // bytes per element
  std::string_view name;              // for messages
  std::string_view safetensors_name;  // value of "dtype"
  std::string_view npy_name;          // value of 'descr'; empty where .npy cannot say it
};

/// One row per StoredType, in the order of its enumerators.
///
/// NumPy has no bfloat16: arrays of the `ml_dtypes` package are saved as 2-byte void, 'V2', and
/// nothing else that holds numbers is, so V2 is read and written as bfloat16. The 8-bit floats all
/// become 'V1', which says too little to be read back.
inline constexpr auto kStoredTypes = std::to_array<StoredTypeInfo>({
    {StoredType::boolean, 1, "boolean", "BOOL", "|b1"},
    {StoredType::uint8, 1, "uint8", "U8", "|u1"},
    {StoredType::int8, 1, "int8", "I8", "|i1"},
    {StoredType::uint16, 2, "uint16", "U16", "<u2"},
    {StoredType::int16, 2, "int16", "I16", "<i2"},
    {StoredType::uint32, 4, "uint32", "U32", "<u4"},
    {StoredType::int32, 4, "int32", "I32", "<i4"},
    {StoredType::uint64, 8, "uint64", "U64", "<u8"},
    {StoredType::int64, 8, "int64", "I64", "<i8"},
    {StoredType::float8_e4m3, 1, "float8_e4m3", "F8_E4M3", ""},
    {StoredType::float8_e5m2, 1, "float8_e5m2", "F8_E5M2", ""},
    {StoredType::float8_e8m0, 1, "float8_e8m0", "F8_E8M0", ""},
    {StoredType::float16, 2, "float16", "F16", "<f2"},
    {StoredType::bfloat16, 2, "bfloat16", "BF16", "<V2"},
    {StoredType::float32, 4, "float32", "F32", "<f4"},
    {StoredType::float64, 8, "float64", "F64", "<f8"},
    {StoredType::complex64, 8, "complex64", "C64", "<c8"},
    {StoredType::unknown, 1, "unknown", "", ""},  // the size is not known either
});

[[nodiscard]] constexpr bool stored_types_are_in_order() noexcept {
  for (std::size_t i = 0; i < kStoredTypes.size(); ++i) {
    if (static_cast<std::size_t>(kStoredTypes[i].type) != i) return false;
  }
  return true;
}
static_assert(stored_types_are_in_order());

[[nodiscard]] constexpr const StoredTypeInfo& stored_type_info(StoredType type) noexcept {
  return kStoredTypes[static_cast<std::size_t>(type)];
}

[[nodiscard]] constexpr std::size_t stored_size(StoredType type) noexcept {
  return stored_type_info(type).size;
}

[[nodiscard]] constexpr std::string_view stored_name(StoredType type) noexcept {
  return stored_type_info(type).name;
}

/// The element type of attention tensors that equals `type`, if there is one.
[[nodiscard]] constexpr std::optional<ElementType> attention_element_type(
    StoredType type) noexcept {
  switch (type) {
    case StoredType::bfloat16:
      return ElementType::bfloat16;
    case StoredType::float16:
      return ElementType::float16;
    case StoredType::float32:
      return ElementType::float32;
    default:
      return std::nullopt;
  }
}

}  // namespace openvc::io
