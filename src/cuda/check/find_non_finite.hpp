// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "openvc/options.hpp"
#include "openvc/tensor_view.hpp"

namespace openvc::cuda {

/// Index of the first infinity or NaN of a tensor in row-major order, -1 if there is none.
///
/// Looks on `execution.stream` behind what is queued there, and waits for the answer: a debugging
/// aid. A stream that is being captured into a graph has no answer to wait for; such a call throws
/// openvc::Error with ErrorCode::unsupported and leaves the capture as it is.
std::int64_t find_non_finite(const TensorView& tensor, const Execution& execution);

}  // namespace openvc::cuda
