// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace openvc::io {

/// A regular file mapped read-only into memory, for as long as the object lives.
///
/// The mapping follows the file: a process that truncates it meanwhile makes later reads fail with
/// SIGBUS, as with every memory map. The writers of this library therefore replace files by a
/// rename and never write into an existing one.
class MappedFile {
 public:
  MappedFile() noexcept = default;

  /// Throws FileError if `path` is missing, unreadable, a directory or not a regular file.
  explicit MappedFile(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  /// Empty for an empty file; the address does not change when the object is moved.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace openvc::io
