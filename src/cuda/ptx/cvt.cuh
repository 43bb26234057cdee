// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Conversions between binary32 and narrower formats, packed in pairs, the lower half first.
// PTX ISA 9.0, 9.7.9, cvt:
// https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt
namespace openvc::cuda::ptx {

/// cvt.e4m3x2.f32 (PTX 8.1, sm_89): rounds to nearest even and saturates; NaN gives 0x7F. Equals
/// numerics::e4m3_encode for every input.
__device__ __forceinline__ std::uint16_t cvt_rn_satfinite_e4m3x2_f32(float low, float high) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

/// cvt.f16x2.e4m3x2 (PTX 8.1, sm_89): exact.
__device__ __forceinline__ std::uint32_t cvt_rn_f16x2_e4m3x2(std::uint16_t codes) {
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
  return halves;
}

/// cvt.f32.f16 (PTX 1.0) of the low half of a pair.
__device__ __forceinline__ float cvt_f32_f16_low(std::uint32_t pair) {
  float x;
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, l;\n}" : "=f"(x) : "r"(pair));
  return x;
}

/// cvt.f32.f16 (PTX 1.0) of the high half of a pair.
__device__ __forceinline__ float cvt_f32_f16_high(std::uint32_t pair) {
  float x;
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, h;\n}" : "=f"(x) : "r"(pair));
  return x;
}

/// cvt.satfinite.f16x2.f32 (PTX 8.1, sm_80): values beyond the finite range become its ends; NaN
/// passes.
__device__ __forceinline__ std::uint32_t cvt_rn_satfinite_f16x2(float low, float high) {
  std::uint32_t d;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

/// cvt.satfinite.bf16x2.f32 (PTX 8.1, sm_80): the same for bfloat16.
__device__ __forceinline__ std::uint32_t cvt_rn_satfinite_bf16x2(float low, float high) {
  std::uint32_t d;
  asm("cvt.rn.satfinite.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

}  // namespace openvc::cuda::ptx
