// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

// What the commands write: standard output and files.
namespace openvc::cli {

/// For the start of the program: no stream may end it, nor be mistaken for a file.
///
/// Writing to a closed pipe or beyond a file size limit fails like any other writing, instead of
/// ending the process by a signal. Of the descriptors 0 to 2 those that are closed are taken, so
/// that no file which is opened later becomes standard output; writing to them still fails.
void prepare_standard_streams();

/// Prints a message on standard error. False if it was lost.
bool print_error(std::string_view message) noexcept;

/// Prints a warning on standard error; the program fails in the end if it was lost.
void warn(std::string_view message);

/// Throws std::runtime_error if a warning was lost.
void require_warnings_shown();

/// Hands what was printed to the system; throws std::runtime_error if any of it was lost.
///
/// Text waits in a buffer, so printing seems to succeed on a full disk.
void flush_standard_output();

/// What flush_standard_output() says, for a failure that printing itself reports.
[[nodiscard]] std::string output_lost_message(std::string_view reason);

/// Accepts every path but the empty one, which would otherwise read like an absent option.
[[nodiscard]] CLI::Validator file_path();

/// A path of the command line and the option that takes it.
struct NamedPath {
  std::string option;
  std::filesystem::path path;
};

/// Throws unless every output can be written and is a file of its own: neither an input, nor
/// another output, nor what standard output or standard error are redirected to, through whatever
/// links. Empty paths are none to write.
///
/// For the start of a command, before anything is read: nobody should lose an hour of computing to
/// a mistyped folder, nor the input.
void require_outputs(const std::vector<NamedPath>& outputs,
                     const std::vector<NamedPath>& inputs = {});

/// Replaces `path` by a file with this text.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace openvc::cli
