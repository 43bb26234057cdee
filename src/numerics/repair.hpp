// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/v_quantize.hpp"

// V residual repair: which tokens get their rounding error back as an extra key/value row, and what
// that row holds. docs/numerics.md section 5.
namespace openvc::numerics {

/// round_half_even(budget * tokens), the number of repaired tokens of a head. 0 <= budget < 1.
OPENVC_HD constexpr std::int64_t repair_row_count(double budget, std::int64_t tokens) {
  const double exact = budget * static_cast<double>(tokens);
  const auto whole = static_cast<std::int64_t>(exact);
  const double rest = exact - static_cast<double>(whole);
  const bool up = rest > 0.5 || (rest == 0.5 && (whole & 1) != 0);
  return whole + (up ? 1 : 0);
}

/// What rounding to E4M3 left of a value, on the grid of its channel. Repair rows hold it as E4M3
/// with the channel's own scale, so the main loop treats them like any other row of V.
OPENVC_HD constexpr float value_residual(float coordinate, std::uint8_t code) {
  return coordinate - e4m3_decode(code);
}

/// Orders like the energy of a token; all NaNs are alike and above everything (their head is NaN
/// anyway).
OPENVC_HD constexpr std::uint32_t repair_order(float energy) {
  return magnitude_bits(with_canonical_nan(energy));
}

/// Order of repair: larger first, ties by index.
OPENVC_HD constexpr bool repairs_before(float score_a, std::int64_t token_a, float score_b,
                                        std::int64_t token_b) {
  const std::uint32_t a = repair_order(score_a);
  const std::uint32_t b = repair_order(score_b);
  return a != b ? a > b : token_a < token_b;
}

static_assert(repair_row_count(0.0, 1000) == 0 && repair_row_count(0.5, 5) == 2);
static_assert(repair_row_count(0.5, 7) == 4 && repair_row_count(0.005, 73397) == 367);

}  // namespace openvc::numerics
