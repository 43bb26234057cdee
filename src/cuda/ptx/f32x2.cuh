// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Packed binary32 arithmetic: PTX ISA 9.0, 9.7.3 (PTX 8.6, sm_100). Each half as fma.rn of it
// alone.
namespace openvc::cuda::ptx {

/// fma.rn.f32x2: (low, high) += (a_low, a_high) * b.
__device__ __forceinline__ void fma_rn_f32x2(float& low, float& high, float a_low, float a_high,
                                             float b) {
  asm("{\n"
      ".reg .b64 a, b, c;\n"
      "mov.b64 a, {%2, %3};\n"
      "mov.b64 b, {%4, %4};\n"
      "mov.b64 c, {%0, %1};\n"
      "fma.rn.f32x2 c, a, b, c;\n"
      "mov.b64 {%0, %1}, c;\n"
      "}\n"
      : "+f"(low), "+f"(high)
      : "f"(a_low), "f"(a_high), "f"(b));
}

}  // namespace openvc::cuda::ptx
