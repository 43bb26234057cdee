// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "openvc/tensor_view.hpp"

namespace openvc::cpu {

/// Converts the channels of token (b, s, h) to float; exact for every element type. `out` takes
/// shape[kChannel] values. The channel stride must be 1, the other strides may be anything.
void load_row(const TensorView& tensor, std::int64_t b, std::int64_t s, std::int64_t h, float* out);

/// The same with zeros behind them: a row of kHeadDim channels.
void load_padded_row(const TensorView& tensor, std::int64_t b, std::int64_t s, std::int64_t h,
                     float* out);

}  // namespace openvc::cpu
