// SPDX-License-Identifier: BSD-3-Clause
#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include "io/file_descriptor.hpp"
#include "io/file_error.hpp"

namespace openvc::io {
namespace {

int open_for_reading(const std::filesystem::path& path) {
  int descriptor = -1;
  do {
    // O_NONBLOCK: opening a named pipe must fail the check below instead of waiting for a writer.
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view action,
                         int error_number) {
  throw_system_failure(FileErrorReason::cannot_open, path, action, error_number);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const FileDescriptor file(open_for_reading(path));
  if (!file.is_open()) refuse(path, "open it", errno);

  struct stat status {};
  if (::fstat(file.get(), &status) != 0) refuse(path, "tell its size", errno);
  if (!S_ISREG(status.st_mode)) {
    throw FileError(FileErrorReason::cannot_open, path,
                    {.found = S_ISDIR(status.st_mode) ? "a directory" : "a pipe, socket or device",
                     .expected = "a regular file",
                     .advice = "Give the path of the tensor file itself."});
  }
  const auto size = static_cast<std::uintmax_t>(status.st_size);
  if (size > std::numeric_limits<std::size_t>::max()) {
    refuse(path, "map so large a file into memory", EFBIG);
  }
  if (size == 0) return;  // mmap refuses a length of zero

  void* address =
      ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) refuse(path, "map it into memory", errno);
  bytes_ = {static_cast<const std::byte*>(address), static_cast<std::size_t>(size)};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  MappedFile taken(std::move(other));  // its destructor unmaps what this object held
  std::swap(bytes_, taken.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace openvc::io
