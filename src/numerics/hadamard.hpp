// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"

namespace openvc::numerics {

/// The normalised Hadamard matrix is H / sqrt(128). Q and K are multiplied by H times these powers
/// of two instead, whose product is 1/128: scores are unchanged and no rounding is added.
inline constexpr float kQueryRotationScale = exp2_int(kContract.query_rotation_exponent);
inline constexpr float kKeyRotationScale = exp2_int(kContract.key_rotation_exponent);
static_assert(kQueryRotationScale * kKeyRotationScale * static_cast<float>(kHeadDim) == 1.0f);

/// In-place Walsh-Hadamard transform of one row in natural order, strides 1, 2, 4, ... 64.
template <int kDim = kHeadDim>
OPENVC_HD constexpr void hadamard(float* row) {
  static_assert((kDim & (kDim - 1)) == 0, "a Hadamard matrix of this kind has a power of two rows");
  for (int stride = 1; stride < kDim; stride *= 2) {
    for (int block = 0; block < kDim; block += 2 * stride) {
      for (int i = block; i < block + stride; ++i) {
        const float a = row[i];
        const float b = row[i + stride];
        row[i] = a + b;
        row[i + stride] = a - b;
      }
    }
  }
}

}  // namespace openvc::numerics
