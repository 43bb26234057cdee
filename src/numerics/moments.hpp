// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"

// Second moments of a sample of tokens. Every channel is rounded to eight bits about the middle of
// its range first: sums of products of integers are exact, so no order of tokens and no number of
// threads changes them, and tensor cores form them.
namespace openvc::numerics {

/// Largest code of a channel.
inline constexpr int kMomentCodeMax = 127;

/// Code of an element: (x - centre) * multiplier, rounded.
struct MomentScale {
  float centre = 0.0f;
  std::int32_t exponent = 0;  ///< a code counts 2^this

  [[nodiscard]] OPENVC_HD constexpr float multiplier() const { return exp2_int(-exponent); }
};

/// `exponent` is such that the codes of the range reach 64 to 127; ranges below 2^-110 have none.
OPENVC_HD constexpr MomentScale moment_scale(float min, float max, bool centred) {
  MomentScale scale;
  if (centred) scale.centre = 0.5f * min + 0.5f * max;
  const float above = magnitude(max - scale.centre);
  const float below = magnitude(scale.centre - min);
  constexpr int kLog2Codes = 6;
  constexpr int kMinExponent = -116;
  const int exponent = floor_log2(above > below ? above : below) - kLog2Codes;
  scale.exponent = clamp_int(exponent, kMinExponent, kFloatMaxExponent - kLog2Codes);
  return scale;
}

/// Nearest code, ties to even. Elements that are not finite have one too.
OPENVC_HD constexpr std::int32_t moment_code(float x, float centre, float multiplier) {
  const float position = (x - centre) * multiplier;
  constexpr auto kLimit = static_cast<float>(kMomentCodeMax);
  const float limited = position > -kLimit ? (position < kLimit ? position : kLimit) : -kLimit;
  constexpr float kToInteger = 0x1.8p23f;  // beside it a unit is the last place
  return static_cast<std::int32_t>((limited + kToInteger) - kToInteger);
}

/// Of one tensor of a head, or of several heads that share axes.
template <int kDim>
struct MomentsOf {
  MomentScale scales[kDim];
  std::int32_t sums[kDim];         ///< of the codes
  std::int32_t gram[kDim * kDim];  ///< of products of codes
};
using Moments = MomentsOf<kHeadDim>;

static_assert(kContract.sample_tokens * kMomentCodeMax * kMomentCodeMax < INT32_MAX);

/// What covariances are scaled by, so that they neither overflow nor vanish together.
template <int kDim>
OPENVC_HD constexpr int largest_exponent(const MomentsOf<kDim>& moments) {
  int largest = moments.scales[0].exponent;
  for (int c = 1; c < kDim; ++c) {
    const int exponent = moments.scales[c].exponent;
    largest = exponent > largest ? exponent : largest;
  }
  return largest;
}

/// n^2 4^-largest times the moment of two channels, i <= j: about the mean of the sample if
/// `centred`, about zero else (centres are then zero). The difference is exact; it is rounded once.
template <int kDim>
[[gnu::always_inline]] OPENVC_HD constexpr float moment(const MomentsOf<kDim>& moments, int tokens,
                                                        bool centred, int largest, int i, int j) {
  std::int64_t product = std::int64_t{tokens} * moments.gram[i * kDim + j];
  if (centred) product -= std::int64_t{moments.sums[i]} * moments.sums[j];
  const auto factor = [&](int c) {
    return exp2_int(clamp_int(moments.scales[c].exponent - largest, kFloatMinNormalExponent, 0));
  };
  return static_cast<float>(product) * (factor(i) * factor(j));
}

}  // namespace openvc::numerics
