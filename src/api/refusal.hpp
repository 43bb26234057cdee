// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "openvc/status.hpp"

namespace openvc::api {

/// Why a call cannot be honoured. Every message has the same shape: the argument, what was found,
/// what was expected, what to do.
struct Refusal {
  ErrorCode code = ErrorCode::invalid_value;
  std::string message;
};

/// Empty if nothing is wrong.
using MaybeRefusal = std::optional<Refusal>;

inline Refusal invalid_value(std::string message) {
  return {ErrorCode::invalid_value, std::move(message)};
}
inline Refusal invalid_type(std::string message) {
  return {ErrorCode::invalid_type, std::move(message)};
}
inline Refusal unsupported(std::string message) {
  return {ErrorCode::unsupported, std::move(message)};
}

}  // namespace openvc::api
