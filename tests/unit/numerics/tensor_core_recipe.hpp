// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>

#include "numerics/exp_cast.hpp"
#include "numerics/half.hpp"
#include "unit/numerics/oracles.hpp"
#include "unit/numerics/sweep.hpp"

// The instructions by which a kernel computes ExpCast, emulated on values. Every operand is a
// binary16 number and so is every result, rounded once from the exact value: the double that holds
// it is exact (operands of 11 bits, exponents within 50 of each other).
namespace openvc::numerics::testing {

/// HFMA2: a * b + c.
inline double hfma(double a, double b, double c) { return round_to_half(a * b + c); }

/// HFMA2.RELU; NaN stays NaN, -0 becomes +0.
inline double hfma_relu(double a, double b, double c) {
  const double result = hfma(a, b, c);
  return result <= 0.0 ? 0.0 : result;
}

/// The bits of a result. A kernel takes the low byte; that the high one is zero makes this a
/// stronger check, except for the canonical NaN, 0x7FFF.
inline int code_bits(double half) {
  if (std::isnan(half)) return 0xFF;
  return float_to_half(static_cast<float>(half));
}

inline constexpr double kGrid = 0x1p-24;

/// code = relu(score 2^-24 + offset 2^-24)
inline double recipe(double score, double offset) {
  return hfma_relu(score, kGrid, offset * kGrid);
}

/// The maximum is subtracted first: d = score - top, then the same with the multiplier
/// 2^(exponent - 24).
inline double wide_difference(double score, double top) { return round_to_half(score - top); }

inline double wide_recipe(double difference, int exponent) {
  return hfma_relu(difference, std::ldexp(kGrid, exponent), kPeakCode * kGrid);
}

/// Compares the recipe with the contract for one offset and every finite score that does not exceed
/// a top of that offset.
inline void check_recipes(float offset, Mismatches& found) {
  const double wide_offset = static_cast<double>(offset);
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    if ((bits & 0x7C00u) == 0x7C00u) continue;
    const float score = half_to_float(static_cast<std::uint16_t>(bits));
    const double wide_score = static_cast<double>(score);
    if (wide_score + wide_offset > kPeakCode + 0.5) continue;
    found.check(code_bits(recipe(wide_score, wide_offset)), exp_cast(score, offset), wide_score,
                wide_offset);
  }
}

}  // namespace openvc::numerics::testing
