// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "io/file_descriptor.hpp"

namespace openvc::io {

/// Names a file that must not outlive the process, for remove_unfinished_files().
class UnfinishedFile {
 public:
  UnfinishedFile() = default;
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;
  ~UnfinishedFile() { forget(); }

  /// `path` stays valid until forget().
  void remember(const char* path) noexcept;
  void forget() noexcept;

 private:
  std::atomic<const char*>* place_ = nullptr;
};

/// Removes what all writers have begun and not committed. Only for a process that is about to end;
/// a handler of signals may call it.
void remove_unfinished_files() noexcept;

/// Writes a file so that `path` holds either its old content or all of the new one.
///
/// The bytes go to a new file in the same folder, which commit() renames to `path`; without a
/// commit the destructor removes it. A process that has the old file mapped keeps the old content.
/// A symbolic link at `path` stays, and the file that it points to is replaced. The permissions of
/// a file that is replaced stay, and its owner where the system allows it.
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
  UnfinishedFile unfinished_;
  FileDescriptor file_;
};

}  // namespace openvc::io
