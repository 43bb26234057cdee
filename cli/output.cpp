// SPDX-License-Identifier: BSD-3-Clause
#include "output.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <system_error>

#include "io/atomic_file_writer.hpp"

namespace openvc::cli {

void flush_standard_output() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const int error_number = errno;
  if (flushed && std::ferror(stdout) == 0) return;
  // An earlier failure leaves its mark on the stream, but not its reason.
  const std::string reason =
      flushed ? "an earlier part of it was lost" : std::generic_category().message(error_number);
  throw std::runtime_error(output_lost_message(reason));
}

std::string output_lost_message(std::string_view reason) {
  return fmt::format(
      "standard output cannot be written ({}). Check that what it is sent to is open and has "
      "space.",
      reason);
}

CLI::Validator file_path() {
  return CLI::Validator(
      [](const std::string& text) {
        return text.empty() ? std::string("'' is not the path of a file") : std::string();
      },
      "");
}

void require_writable(const std::filesystem::path& path) {
  if (path.empty()) return;
  // The file beside `path` that a writer starts with goes again with the writer.
  const io::AtomicFileWriter writer(path);
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  io::AtomicFileWriter writer(path);
  writer.write(text);
  writer.commit();
}

}  // namespace openvc::cli
