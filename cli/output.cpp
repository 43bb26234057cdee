// SPDX-License-Identifier: BSD-3-Clause
#include "output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <system_error>

#include "command.hpp"
#include "io/atomic_file_writer.hpp"
#include "io/file_identity.hpp"

namespace openvc::cli {
namespace {

bool warning_lost = false;

[[noreturn]] void refuse_shared(const NamedPath& output, const std::string& other) {
  throw UsageError(fmt::format(
      "{} {}: found the same file as {}; expected a file that nothing else of this command reads "
      "or writes. Give another path.",
      output.option, output.path.string(), other));
}

void require_own_file(const NamedPath& output, const std::vector<NamedPath>& others) {
  for (const NamedPath& other : others) {
    if (other.path.empty() || !io::is_same_file(output.path, other.path)) continue;
    refuse_shared(output, other.option + " " + other.path.string());
  }
}

}  // namespace

void prepare_standard_streams() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free descriptor is this one. Reading only: what is written is lost, and must not
    // seem to arrive. The root folder serves where there is no /dev.
    if (::open("/dev/null", O_RDONLY) == -1) static_cast<void>(::open("/", O_RDONLY));
  }
}

bool print_error(std::string_view message) noexcept {
  return std::fprintf(stderr, "open-vc-attn: %.*s\n", static_cast<int>(message.size()),
                      message.data()) >= 0 &&
         std::fflush(stderr) == 0;
}

void warn(std::string_view message) {
  if (!print_error(fmt::format("warning: {}", message))) warning_lost = true;
}

void require_warnings_shown() {
  if (warning_lost) {
    throw std::runtime_error(
        "a warning could not be written to standard error. Check that what it is sent to is open "
        "and has space.");
  }
}

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

void require_outputs(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs) {
  std::vector<NamedPath> taken = inputs;
  for (const NamedPath& output : outputs) {
    if (output.path.empty()) continue;
    require_own_file(output, taken);
    if (io::is_open_as(output.path, STDOUT_FILENO)) refuse_shared(output, "standard output");
    if (io::is_open_as(output.path, STDERR_FILENO)) refuse_shared(output, "standard error");
    taken.push_back(output);
  }
  for (const NamedPath& output : outputs) {
    if (output.path.empty()) continue;
    // The file beside the path that a writer starts with goes again with the writer.
    const io::AtomicFileWriter writer(output.path);
  }
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  io::AtomicFileWriter writer(path);
  writer.write(text);
  writer.commit();
}

}  // namespace openvc::cli
