// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "io/tensor_entry.hpp"

namespace openvc::io {

struct NpyOptions {
  /// Read '<u2' as the raw bits of bfloat16, for arrays saved through `tensor.view(uint16)`. Off by
  /// default: such a file may as well hold integers.
  bool uint16_is_bfloat16 = false;
};

/// Whether `file` starts with the magic bytes of NumPy's .npy format.
[[nodiscard]] bool has_npy_magic(std::span<const std::byte> file) noexcept;

/// Reads the content of a .npy file, format version 1, 2 or 3, strictly.
///
/// Accepted are little-endian arrays of plain numbers in C order, and 2-byte void ('V2') as
/// bfloat16 (see kStoredTypes). Refused, with the NumPy call that helps: big-endian and Fortran
/// order arrays, structured types, text, objects, and bytes after the array.
/// The entry points into `file`; its name is the file name of `path` without the extension.
[[nodiscard]] TensorFileContents parse_npy(std::span<const std::byte> file,
                                           const std::filesystem::path& path,
                                           const NpyOptions& options = {});

}  // namespace openvc::io
