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

/// x without the clamp, y = relu(x / 4 + 4), code = max(x, y)
inline double recipe_with_tail(double score, double offset) {
  const double x = hfma(score, kGrid, offset * kGrid);
  const double y = hfma_relu(x, 0.25, 4.0 * kGrid);
  return x > y ? x : y;
}

/// The maximum is subtracted first: d = score - row_max, then the same with the multiplier
/// 2^(exponent - 24).
inline double wide_difference(double score, double row_max) {
  return round_to_half(score - row_max);
}

inline double wide_recipe(double difference, int exponent) {
  return hfma_relu(difference, std::ldexp(kGrid, exponent), kPeakCode * kGrid);
}

inline double wide_recipe_with_tail(double difference, int exponent) {
  const double x = hfma(difference, std::ldexp(kGrid, exponent), kPeakCode * kGrid);
  const double y = hfma_relu(x, 0.25, 4.0 * kGrid);
  return x > y ? x : y;
}

/// Compares both recipes with the contract for one offset and every finite score that does not
/// exceed a row maximum of that offset.
inline void check_recipes(float offset, Mismatches& found) {
  const double wide_offset = static_cast<double>(offset);
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    if ((bits & 0x7C00u) == 0x7C00u) continue;
    const float score = half_to_float(static_cast<std::uint16_t>(bits));
    const double wide_score = static_cast<double>(score);
    if (wide_score + wide_offset > kPeakCode) continue;
    found.check(code_bits(recipe(wide_score, wide_offset)), exp_cast(score, offset), wide_score,
                wide_offset);
    found.check(code_bits(recipe_with_tail(wide_score, wide_offset)), exp_cast_tail(score, offset),
                wide_score, wide_offset);
  }
}

}  // namespace openvc::numerics::testing
