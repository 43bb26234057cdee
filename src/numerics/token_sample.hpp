// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"

// The tokens that moments are taken from: one of every stratum of equal length, at a place that a
// golden-ratio sequence picks. An even stride would see one column of an image, or one frame of a
// video, whose size it divides.
namespace openvc::numerics {

inline constexpr std::int64_t kSampleTokens = kContract.sample_tokens;

OPENVC_HD constexpr int sample_size(std::int64_t tokens) {
  return static_cast<int>(tokens < kSampleTokens ? tokens : kSampleTokens);
}

/// Token i of the sample, 0 <= i < sample_size(tokens), tokens < 2^31; ascending, and all tokens
/// where there are no more than the sample holds.
OPENVC_HD constexpr std::int64_t sampled_token(int i, std::int64_t tokens) {
  const std::int64_t size = sample_size(tokens);
  constexpr std::uint64_t kGoldenRatio = 2'654'435'769u;  // times 2^32, its fraction
  const std::uint64_t place = static_cast<std::uint64_t>(i) * kGoldenRatio & 0xFFFF'FFFFu;
  const auto jitter = static_cast<std::int64_t>(place * static_cast<std::uint64_t>(tokens) >> 32);
  return (i * tokens + jitter) / size;
}

}  // namespace openvc::numerics
