// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>

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

}  // namespace openvc::api
