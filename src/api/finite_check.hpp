// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

#include "api/backend.hpp"
#include "api/validate.hpp"

namespace openvc::api {

/// Whether the environment variable OPEN_VC_ATTN_CHECK is set to 1. Read once per process.
bool finite_check_enabled();

/// What a tensor is of the caller's: one sequence, and some of its tokens.
struct TensorPart {
  std::int64_t batch = 0;
  std::span<const std::int64_t> tokens{};  ///< their numbers; empty for all
};

/// Throws an Error that names the first tensor with a NaN or infinite element and the place of it.
/// A debugging aid: reads everything, on the CPU with one thread, on a device with the call's
/// stream, for which it waits.
void check_finite(const Backend& backend, std::span<const NamedTensor> tensors,
                  const Execution& execution, const TensorPart& part = {});

}  // namespace openvc::api
