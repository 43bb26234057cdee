// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include "machine/recorder.hpp"

namespace openvc::cuda::ptx {

inline void fma_rn_f32x2(float& low, float& high, float a_low, float a_high, float b) {
  model::count(model::InstructionClass::fma_pair);
  low = __builtin_fmaf(a_low, b, low);
  high = __builtin_fmaf(a_high, b, high);
}

}  // namespace openvc::cuda::ptx
