// SPDX-License-Identifier: BSD-3-Clause
#include "io/atomic_file_writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "io/file_error.hpp"
#include "io/file_identity.hpp"

namespace openvc::io {
namespace {

/// The path whose content is replaced. Anything but a regular file there is refused: renaming over
/// a device such as /dev/null would succeed for root, and break the machine.
std::filesystem::path writable_target(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw FileError(FileErrorReason::cannot_write, path,
                    {.found = std::filesystem::is_directory(status) ? "a directory"
                                                                    : "a pipe, socket or device",
                     .expected = "a regular file or a path that does not exist",
                     .advice = "Give the path of the file to write."});
  }
  // A link stays one: what it leads to is replaced.
  if (!std::filesystem::is_symlink(std::filesystem::symlink_status(path, error))) return path;
  return follow_links(path);
}

std::filesystem::path temporary_path(const std::filesystem::path& target) {
  static std::atomic<std::uint64_t> counter{0};
  std::filesystem::path name = target;
  name += ".partial-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
  return name;
}

constexpr mode_t kNewFile = 0666;      // less the user's umask: what every program gives
constexpr mode_t kPrivateFile = 0600;  // until it has the permissions of the file that it replaces
constexpr mode_t kPermissions = S_IRWXU | S_IRWXG | S_IRWXO;

std::optional<struct stat> status_of(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return status;
}

/// Lets those read and write a file who could read and write the one that it replaces. Where the
/// system refuses, as file systems without owners do, fewer can.
void take_permissions(int file, const struct stat& replaced) {
  constexpr auto kSameOwner = static_cast<uid_t>(-1);
  mode_t mode = replaced.st_mode & kPermissions;
  if (::fchown(file, replaced.st_uid, replaced.st_gid) != 0 &&
      ::fchown(file, kSameOwner, replaced.st_gid) != 0) {
    mode &= ~static_cast<mode_t>(S_IRWXG);  // of another group
  }
  static_cast<void>(::fchmod(file, mode));
}

/// Paths of unfinished files, null where a place is free. A handler of signals may neither allocate
/// nor lock; files beyond these places are left behind by a signal.
constexpr std::size_t kUnfinishedFiles = 64;
std::atomic<const char*> unfinished_files[kUnfinishedFiles];
static_assert(std::atomic<const char*>::is_always_lock_free);

}  // namespace

void UnfinishedFile::remember(const char* path) noexcept {
  for (std::atomic<const char*>& place : unfinished_files) {
    const char* free = nullptr;
    if (!place.compare_exchange_strong(free, path)) continue;
    place_ = &place;
    return;
  }
}

void UnfinishedFile::forget() noexcept {
  if (place_ != nullptr) std::exchange(place_, nullptr)->store(nullptr);
}

void remove_unfinished_files() noexcept {
  for (const std::atomic<const char*>& place : unfinished_files) {
    if (const char* path = place.load()) ::unlink(path);
  }
}

AtomicFileWriter::AtomicFileWriter(const std::filesystem::path& path)
    : target_(writable_target(path)), temporary_(temporary_path(target_)), file_(-1) {
  const std::optional<struct stat> replaced = status_of(target_);
  // O_EXCL: never write into a file that somebody else put there, nor through a link.
  file_ = FileDescriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                                replaced ? kPrivateFile : kNewFile));
  if (!file_.is_open()) {
    const int error_number = errno;
    throw_system_failure(FileErrorReason::cannot_write, target_, "create a file beside it",
                         error_number);
  }
  unfinished_.remember(temporary_.c_str());
  if (replaced) take_permissions(file_.get(), *replaced);
}

AtomicFileWriter::~AtomicFileWriter() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  unfinished_.forget();  // while its path is there
}

void AtomicFileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // One call may write less than asked for: Linux stops at 2 GiB, and signals interrupt.
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      refuse("write it", errno);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFileWriter::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void AtomicFileWriter::commit() {
  // Without fsync a power cut after the rename could leave an empty file under the final name.
  if (::fsync(file_.get()) != 0) refuse("flush it to the disk", errno);
  if (file_.close() != 0) refuse("close it", errno);
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) refuse("rename it", errno);
  unfinished_.forget();
  temporary_.clear();
}

void AtomicFileWriter::refuse(std::string_view action, int error_number) const {
  throw_system_failure(FileErrorReason::cannot_write, target_, action, error_number);
}

}  // namespace openvc::io
