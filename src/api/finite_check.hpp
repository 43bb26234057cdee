// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <span>

#include "api/backend.hpp"
#include "api/validate.hpp"

namespace openvc::api {

/// Whether the environment variable OPEN_VC_ATTN_CHECK is set to 1. Read once per process.
bool finite_check_enabled();

/// Throws an Error that names the first tensor with a NaN or infinite element and the place of it.
/// A debugging aid: reads everything, on the CPU with one thread, on a device with the call's
/// stream, for which it waits.
void check_finite(const Backend& backend, std::span<const NamedTensor> tensors,
                  const Execution& execution);

}  // namespace openvc::api
