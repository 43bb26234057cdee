// SPDX-License-Identifier: BSD-3-Clause
#include "io/file_identity.hpp"

#include <sys/stat.h>

#include <system_error>

namespace openvc::io {
namespace {

constexpr int kMaxLinks = 40;  // the limit of Linux

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

std::filesystem::path follow_links(const std::filesystem::path& path) {
  std::filesystem::path target = path;
  std::error_code error;
  // weakly_canonical() does not follow a last link that leads to nothing.
  for (int i = 0; i < kMaxLinks; ++i) {
    if (!std::filesystem::is_symlink(std::filesystem::symlink_status(target, error))) break;
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) break;
    target = target.parent_path() / next;  // an absolute `next` replaces all
  }
  const std::filesystem::path absolute = std::filesystem::absolute(target, error);
  if (error) return target;
  const std::filesystem::path canonical = std::filesystem::weakly_canonical(absolute, error);
  return error ? absolute.lexically_normal() : canonical;
}

bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  struct stat status_a {};
  struct stat status_b {};
  const bool a_exists = ::stat(a.c_str(), &status_a) == 0;
  const bool b_exists = ::stat(b.c_str(), &status_b) == 0;
  if (a_exists && b_exists) return is_same(status_a, status_b);
  return a_exists == b_exists && follow_links(a) == follow_links(b);
}

bool is_open_as(const std::filesystem::path& path, int descriptor) {
  struct stat named {};
  struct stat open {};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(descriptor, &open) == 0 &&
         S_ISREG(open.st_mode) && is_same(named, open);
}

}  // namespace openvc::io
