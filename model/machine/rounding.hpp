// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/half.hpp"

namespace openvc::model {

/// Rounds to binary16, to nearest even, once: by way of a binary32 number that is rounded to odd,
/// which no second rounding can take for a tie.
inline std::uint16_t double_to_half(double x) {
  const auto nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x || x != x) return numerics::float_to_half(nearest);
  std::uint32_t bits = numerics::float_bits(nearest);
  const double size = x < 0 ? -x : x;
  const double rounded = nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest);
  if (rounded > size) --bits;  // towards zero
  return numerics::float_to_half(numerics::float_from_bits(bits | 1u));
}

}  // namespace openvc::model
