// SPDX-License-Identifier: BSD-3-Clause
#include "unit/numerics/cuda_fp8_oracle.hpp"

#if __has_include(<cuda_fp8.h>)

#include <cuda_fp8.h>

namespace openvc::numerics::testing {

bool have_cuda_fp8() { return true; }

std::uint8_t cuda_fp8_encode(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

float cuda_fp8_decode(std::uint8_t code) {
  __nv_fp8_e4m3 number;
  number.__x = code;
  return static_cast<float>(number);
}

}  // namespace openvc::numerics::testing

#else

namespace openvc::numerics::testing {

bool have_cuda_fp8() { return false; }
std::uint8_t cuda_fp8_encode(float /*x*/) { return 0; }
float cuda_fp8_decode(std::uint8_t /*code*/) { return 0.0f; }

}  // namespace openvc::numerics::testing

#endif
