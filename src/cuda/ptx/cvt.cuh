// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Conversions between binary32 and E4M3, two values at a time, the lower byte first. Compute
// capability 8.9 and newer.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt
namespace openvc::cuda::ptx {

/// Rounds to nearest even and saturates; NaN gives 0x7F. The twin of numerics::e4m3_encode.
__device__ __forceinline__ std::uint16_t cvt_rn_satfinite_e4m3x2_f32(float low, float high) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

/// Exact. The two binary16 values share a register.
__device__ __forceinline__ std::uint32_t cvt_rn_f16x2_e4m3x2(std::uint16_t codes) {
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
  return halves;
}

}  // namespace openvc::cuda::ptx
