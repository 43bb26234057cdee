// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <string_view>

// What the commands write: standard output and files.
namespace openvc::cli {

/// Hands what was printed to the system; throws std::runtime_error if any of it was lost.
///
/// Text waits in a buffer, so printing seems to succeed on a full disk.
void flush_standard_output();

/// What flush_standard_output() says, for a failure that printing itself reports.
[[nodiscard]] std::string output_lost_message(std::string_view reason);

/// Accepts every path but the empty one, which would otherwise read like an absent option.
[[nodiscard]] CLI::Validator file_path();

/// Throws io::FileError unless a file can be written at `path`; an empty path is none to write.
///
/// For the start of a command: nobody should lose an hour of computing to a mistyped folder.
void require_writable(const std::filesystem::path& path);

/// Replaces `path` by a file with this text.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace openvc::cli
