// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "io/stored_type.hpp"

namespace openvc::io {

/// The most dimensions that a stored tensor may have; NumPy has the same limit. It keeps a hostile
/// header from making every later loop over a shape long.
inline constexpr std::size_t kMaxRank = 64;

/// One tensor of a file: contiguous, row major, little endian.
///
/// `bytes` points into the file and may be unaligned for the element type, because the safetensors
/// format does not pad between tensors: read elements through copy_elements(), never through a cast
/// pointer.
struct TensorEntry {
  std::string name;
  StoredType type = StoredType::float32;
  std::vector<std::int64_t> shape;  // empty for a scalar, which has one element
  std::span<const std::byte> bytes;

  [[nodiscard]] std::size_t element_count() const noexcept {
    return bytes.size() / stored_size(type);
  }
};

/// Free text that travels with the tensors of a file.
using Metadata = std::map<std::string, std::string>;

/// What a reader finds in the bytes of a file; the entries point into those bytes.
struct TensorFileContents {
  std::vector<TensorEntry> entries;
  Metadata metadata;
};

/// Bytes of a contiguous tensor, or nothing if a dimension is negative or a size overflows int64.
///
/// A dimension of zero does not hide the overflow of the others, which code that computes strides
/// would meet later.
[[nodiscard]] std::optional<std::uint64_t> checked_byte_count(std::span<const std::int64_t> shape,
                                                              StoredType type) noexcept;

/// Throws FileError unless `entry` has at most kMaxRank dimensions and as many bytes as its type
/// and shape say. Writers call it; `path` is for the message.
void check_writable(const TensorEntry& entry, const std::filesystem::path& path);

/// `shape` as "[2, 3]", shortened where it is long, for messages.
[[nodiscard]] std::string shape_text(std::span<const std::int64_t> shape);

/// Whether elements of `type` may be copied into objects of type Element: the same number type, or
/// the raw bits as an unsigned integer or a class (a bfloat16 wrapper, say) of the same size.
template <class Element>
[[nodiscard]] constexpr bool can_hold(StoredType type) noexcept {
  static_assert(std::is_trivially_copyable_v<Element>);
  if (sizeof(Element) != stored_size(type)) return false;
  if constexpr (std::same_as<Element, float>) return type == StoredType::float32;
  if constexpr (std::same_as<Element, double>) return type == StoredType::float64;
  if constexpr (std::same_as<Element, bool>) return false;  // bytes above 1 are not a bool
  if constexpr (std::signed_integral<Element>) {
    return type == StoredType::int8 || type == StoredType::int16 || type == StoredType::int32 ||
           type == StoredType::int64;
  }
  return true;
}

/// Throws Error(invalid_type) that names the tensor, its type and the size that was asked for.
[[noreturn]] void throw_element_mismatch(const TensorEntry& entry, std::size_t requested_size);

/// The elements of `entry`, copied to aligned memory.
template <class Element>
[[nodiscard]] std::vector<Element> copy_elements(const TensorEntry& entry) {
  if (!can_hold<Element>(entry.type)) throw_element_mismatch(entry, sizeof(Element));
  std::vector<Element> elements(entry.element_count());
  if (!elements.empty()) {
    std::memcpy(elements.data(), entry.bytes.data(), elements.size() * sizeof(Element));
  }
  return elements;
}

}  // namespace openvc::io
