// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "openvc/status.hpp"

namespace openvc::io {

enum class FileErrorReason {
  cannot_open,     ///< missing, not readable, a directory, not a regular file
  cannot_write,    ///< the system refused to create, fill or rename the file
  malformed,       ///< the content contradicts its own format
  unsupported,     ///< well formed, but holds something that this library does not read or write
  no_such_tensor,  ///< the file holds no tensor of that name
};

/// The three parts that every message about a file has, besides its path.
struct FileProblem {
  std::string found;
  std::string expected;
  std::string advice;  // what the user can do, as a full sentence
};

/// The only exception that this layer throws about a file. Catching openvc::Error catches it too.
class FileError : public Error {
 public:
  FileError(FileErrorReason reason, const std::filesystem::path& path, const FileProblem& problem);

  [[nodiscard]] FileErrorReason reason() const noexcept { return reason_; }

 private:
  FileErrorReason reason_;
};

/// Throws FileErrorReason::malformed with the advice that fits every damaged file.
[[noreturn]] void throw_malformed(const std::filesystem::path& path, std::string found,
                                  std::string expected);

/// Throws for a failed system call; `action` continues the words "found that the system cannot".
[[noreturn]] void throw_system_failure(FileErrorReason reason, const std::filesystem::path& path,
                                       std::string_view action, int error_number);

/// `text` in single quotes, limited in length, with everything but printable ASCII escaped.
///
/// Names come from files that may be hostile: unescaped, they could rewrite the user's terminal or
/// flood a log.
[[nodiscard]] std::string quote_for_message(std::string_view text);

}  // namespace openvc::io
