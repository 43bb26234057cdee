// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "io/tensor_entry.hpp"

namespace openvc::io {

/// File layout: header size (u64, little endian), header (JSON), tensor data.
inline constexpr std::size_t kSafetensorsLengthBytes = 8;
/// The key of the header that is not a tensor: a map from text to text.
inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";
/// The limit of the reference implementation; it bounds what a hostile header can cost.
inline constexpr std::size_t kMaxSafetensorsHeaderBytes = 100'000'000;

/// Whether `file` starts like a safetensors file: a plausible length and the begin of a header.
[[nodiscard]] bool looks_like_safetensors(std::span<const std::byte> file) noexcept;

/// Reads the content of a safetensors file strictly.
///
/// Refused, besides text that is not JSON of the right structure: names or keys that occur twice,
/// shapes whose size overflows, tensors that leave the data, overlap, leave gaps or have another
/// size than their shape and type say, and bytes after the last tensor.
/// The entries are in the order of their data and point into `file`; `path` is only for messages.
[[nodiscard]] TensorFileContents parse_safetensors(std::span<const std::byte> file,
                                                   const std::filesystem::path& path);

/// The first part of a file that holds `entries` in the given order: length field and header,
/// padded with spaces so that the data starts at a multiple of 8 bytes.
[[nodiscard]] std::string encode_safetensors_header(std::span<const TensorEntry> entries,
                                                    const Metadata& metadata,
                                                    const std::filesystem::path& path);

/// Writes a safetensors file, replacing `path` only when all is written.
///
/// The same tensors and metadata always give the same bytes, in whatever order they are passed:
/// tensors are sorted by falling element size, which aligns all of them, and then by name.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorEntry> entries,
                       const Metadata& metadata = {});

}  // namespace openvc::io
