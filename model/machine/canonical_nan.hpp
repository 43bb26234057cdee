// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/half.hpp"

// The NaN that conversions and tensor cores of the machine write, whatever NaN they have read: PTX
// calls it canonical, and an H200 writes it as sums and as bfloat16 outputs.
namespace openvc::model {

inline constexpr std::uint16_t kHalfNan = 0x7FFF;  // of bfloat16, too
inline constexpr std::uint32_t kFloatNanBits = 0x7FFF'FFFF;

inline std::uint16_t half_bits(float x) { return x == x ? numerics::float_to_half(x) : kHalfNan; }

inline std::uint16_t bfloat16_bits(float x) {
  return x == x ? numerics::float_to_bfloat16(x) : kHalfNan;
}

}  // namespace openvc::model
