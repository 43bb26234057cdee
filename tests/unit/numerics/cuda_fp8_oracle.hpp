// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#if __has_include(<cuda_fp8.h>)
#include <cuda_fp8.h>
#define OPENVC_HAVE_CUDA_FP8 1
#else
#define OPENVC_HAVE_CUDA_FP8 0
#endif

// NVIDIA's own E4M3 conversions, as they run on the host. They exist only where a CUDA toolkit is
// installed; elsewhere the functions must not be called.
namespace openvc::numerics::testing {

inline constexpr bool kHaveCudaFp8 = OPENVC_HAVE_CUDA_FP8 != 0;

#if OPENVC_HAVE_CUDA_FP8

inline std::uint8_t cuda_fp8_encode(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

inline float cuda_fp8_decode(std::uint8_t code) {
  __nv_fp8_e4m3 number;
  number.__x = code;
  return static_cast<float>(number);
}

#else

inline std::uint8_t cuda_fp8_encode(float /*x*/) { return 0; }
inline float cuda_fp8_decode(std::uint8_t /*code*/) { return 0.0f; }

#endif

}  // namespace openvc::numerics::testing

#undef OPENVC_HAVE_CUDA_FP8
