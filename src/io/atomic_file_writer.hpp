// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "io/file_descriptor.hpp"

namespace openvc::io {

/// Writes a file so that `path` holds either its old content or all of the new one.
///
/// The bytes go to a new file in the same folder, which commit() renames to `path`; without a
/// commit the destructor removes it. A process that has the old file mapped keeps the old content.
/// A symbolic link at `path` stays, and the file that it points to is replaced.
class AtomicFileWriter {
 public:
  explicit AtomicFileWriter(const std::filesystem::path& path);
  AtomicFileWriter(const AtomicFileWriter&) = delete;
  AtomicFileWriter& operator=(const AtomicFileWriter&) = delete;
  ~AtomicFileWriter();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  /// Call once, after the last write.
  void commit();

 private:
  [[noreturn]] void refuse(std::string_view action, int error_number) const;

  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty once renamed
  FileDescriptor file_;
};

}  // namespace openvc::io
