// SPDX-License-Identifier: BSD-3-Clause
#include "io/file_error.hpp"

#include <array>
#include <cstddef>
#include <system_error>
#include <utility>

namespace openvc::io {
namespace {

constexpr std::size_t kMaxQuotedBytes = 96;

ErrorCode error_code_of(FileErrorReason reason) {
  return reason == FileErrorReason::unsupported ? ErrorCode::unsupported : ErrorCode::invalid_value;
}

std::string message_of(const std::filesystem::path& path, const FileProblem& problem) {
  return path.string() + ": found " + problem.found + "; expected " + problem.expected + ". " +
         problem.advice;
}

}  // namespace

FileError::FileError(FileErrorReason reason, const std::filesystem::path& path,
                     const FileProblem& problem)
    : Error(error_code_of(reason), message_of(path, problem)), reason_(reason) {}

void throw_malformed(const std::filesystem::path& path, std::string found, std::string expected) {
  throw FileError(FileErrorReason::malformed, path,
                  {.found = std::move(found),
                   .expected = std::move(expected),
                   .advice = "The file is damaged or incomplete: write or download it again."});
}

void throw_system_failure(FileErrorReason reason, const std::filesystem::path& path,
                          std::string_view action, int error_number) {
  const bool reading = reason == FileErrorReason::cannot_open;
  throw FileError(
      reason, path,
      {.found = "that the system cannot " + std::string(action) + " (" +
                std::generic_category().message(error_number) + ")",
       .expected = reading ? "a readable regular file" : "a place where a file can be written",
       .advice = reading ? "Check the path and its permissions."
                         : "Check that the folder exists, that it is writable and that the disk "
                           "has space."});
}

std::string quote_for_message(std::string_view text) {
  constexpr std::array kHexDigits = {'0', '1', '2', '3', '4', '5', '6', '7',
                                     '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'};
  std::string result = "'";
  for (const char character : text.substr(0, kMaxQuotedBytes)) {
    const auto byte = static_cast<unsigned char>(character);
    const bool printable = byte >= 0x20 && byte < 0x7f;
    if (printable && character != '\\' && character != '\'') {
      result += character;
    } else if (printable) {
      result += '\\';
      result += character;
    } else {
      result += "\\x";
      result += kHexDigits[byte >> 4];
      result += kHexDigits[byte & 0xf];
    }
  }
  result += '\'';
  if (text.size() > kMaxQuotedBytes) {
    result += "... (" + std::to_string(text.size()) + " bytes)";
  }
  return result;
}

}  // namespace openvc::io
