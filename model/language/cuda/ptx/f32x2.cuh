// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

namespace openvc::cuda::ptx {

inline void fma_rn_f32x2(float& low, float& high, float a_low, float a_high, float b) {
  low = __fmaf_rn(a_low, b, low);
  high = __fmaf_rn(a_high, b, high);
}

}  // namespace openvc::cuda::ptx
