// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "numerics/bits.hpp"
#include "numerics/half.hpp"

// Independent definitions to test against. They work on values, in double, where the functions
// under test work on bits; that keeps the two from sharing a mistake.
namespace openvc::numerics::testing {

/// A binary floating-point format: `precision` significand bits including the implicit one; all
/// values are multiples of 2^min_quantum.
struct Format {
  int precision;
  int min_quantum;
  double overflow;  // magnitudes from here on round beyond the largest finite value
};

inline constexpr Format kBinary16{11, -24, 65520.0};
inline constexpr Format kBfloat16{8, -133, 0x1.FFp127};
inline constexpr Format kE4m3{4, -9, 464.0};

/// 2^exponent of a normal number.
constexpr double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

/// Nearest value of the format, ties to even; infinite on overflow.
inline double round_to_format(double x, const Format& format) {
  const double size = std::fabs(x);
  if (!(size < format.overflow)) {
    return std::isnan(x) ? x : std::copysign(std::numeric_limits<double>::infinity(), x);
  }
  // A sum near 1.5 * 2^52 quanta is a multiple of the quantum, rounded to nearest even by the
  // addition. The quantum belongs to the binade of |x|, or to the subnormal numbers.
  const double binade =
      std::bit_cast<double>(std::bit_cast<std::uint64_t>(size) & 0x7FF0'0000'0000'0000u);
  const double quantum =
      std::max(binade * power_of_two(1 - format.precision), power_of_two(format.min_quantum));
  const double magic = 0x1.8p52 * quantum;
  return std::copysign((x + magic) - magic, x);
}

inline double round_to_half(double x) { return round_to_format(x, kBinary16); }

inline bool is_half_nan(std::uint16_t bits) { return (bits & 0x7FFFu) > 0x7C00u; }

/// All finite binary16 values with |x| <= limit in ascending order, zero once.
inline std::vector<float> finite_halves(float limit = kHalfMax) {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0x7C00u; ++bits) {
    const float x = half_to_float(static_cast<std::uint16_t>(bits));
    if (x > limit) break;
    values.push_back(x);
    if (bits != 0) values.push_back(-x);
  }
  std::sort(values.begin(), values.end());
  return values;
}

/// |a - b| in units of the last place of the binary32 number nearest to b.
inline double ulp_distance(float a, long double b) {
  const float nearest = static_cast<float>(b);
  const float size = std::fabs(nearest);
  const float ulp = std::nextafter(size, std::numeric_limits<float>::infinity()) - size;
  return static_cast<double>(std::fabs(static_cast<long double>(a) - b) / ulp);
}

}  // namespace openvc::numerics::testing
