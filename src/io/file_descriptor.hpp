// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unistd.h>

#include <utility>

namespace openvc::io {

/// Owns a POSIX file descriptor; a negative value owns nothing.
class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor) noexcept : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileDescriptor() {
    if (is_open()) ::close(descriptor_);
  }

  [[nodiscard]] bool is_open() const noexcept { return descriptor_ >= 0; }
  [[nodiscard]] int get() const noexcept { return descriptor_; }

  /// Closes now and returns what close() says, for writers: it may report a late write error.
  [[nodiscard]] int close() noexcept { return ::close(std::exchange(descriptor_, -1)); }

 private:
  int descriptor_;
};

}  // namespace openvc::io
