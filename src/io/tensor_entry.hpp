// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/stored_type.hpp"

namespace openvc::io {

/// The most dimensions that a stored tensor may have; NumPy has the same limit. It keeps a hostile
/// header from making every later loop over a shape long.
inline constexpr std::size_t kMaxRank = 64;

/// One tensor of a file: contiguous, row major, little endian.
///
/// `bytes` points into the file and may be unaligned for the element type, because the safetensors
/// format does not pad between tensors: copy them, never cast the pointer.
struct TensorEntry {
  std::string name;
  StoredType type = StoredType::float32;
  std::vector<std::int64_t> shape;  // empty for a scalar, which has one element
  std::span<const std::byte> bytes;
  std::string unknown_type{};  // what the file calls a StoredType::unknown
};

/// The element type of `entry` for messages.
[[nodiscard]] std::string type_text(const TensorEntry& entry);

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

}  // namespace openvc::io
