// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>

// What a shared library shows: the build hides everything else.
#pragma GCC visibility push(default)
namespace openvc {

/// Why a call was refused or failed. The C ABI and the Python package map these one to one.
enum class ErrorCode : int {
  invalid_value = 1,  ///< an argument has a value that no backend can honour    (ValueError)
  invalid_type = 2,   ///< an argument has the wrong type or element type        (TypeError)
  unsupported = 3,  ///< meaningful, but not offered by this build or device   (NotImplementedError)
  out_of_memory = 4,   ///< an allocation failed                                  (MemoryError)
  device_failure = 5,  ///< the CUDA driver or runtime reported an error          (RuntimeError)
};

/// The only exception that the public C++ interface throws by itself.
///
/// The text names the argument, the value that was found and what the caller can do about it.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace openvc
#pragma GCC visibility pop
