// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Packed binary16 arithmetic on raw registers, and byte permutation. Two values a register, the
// lower half first. Denormals are honoured at full rate; nothing here flushes.
namespace openvc::cuda::ptx {

/// a * b + c, one rounding.
__device__ __forceinline__ std::uint32_t fma_f16x2(std::uint32_t a, std::uint32_t b,
                                                   std::uint32_t c) {
  std::uint32_t d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

/// max(a * b + c, 0), one rounding; NaN becomes the canonical NaN.
__device__ __forceinline__ std::uint32_t fma_relu_f16x2(std::uint32_t a, std::uint32_t b,
                                                        std::uint32_t c) {
  std::uint32_t d;
  asm("fma.rn.relu.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

__device__ __forceinline__ std::uint32_t sub_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

/// Maximum; a NaN operand is ignored.
__device__ __forceinline__ std::uint32_t max_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("max.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

__device__ __forceinline__ std::uint32_t min_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("min.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

/// The same of bfloat16.
__device__ __forceinline__ std::uint32_t max_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

__device__ __forceinline__ std::uint32_t min_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("min.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

/// Maximum of unsigned 16-bit integers.
__device__ __forceinline__ std::uint32_t max_u16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("max.u16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

template <int kSelector>
__device__ __forceinline__ std::uint32_t prmt(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "n"(kSelector));
  return d;
}

__device__ __forceinline__ float low_half(std::uint32_t pair) {
  float x;
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, l;\n}" : "=f"(x) : "r"(pair));
  return x;
}

__device__ __forceinline__ float high_half(std::uint32_t pair) {
  float x;
  asm("{\n.reg .b16 l, h;\nmov.b32 {l, h}, %1;\ncvt.f32.f16 %0, h;\n}" : "=f"(x) : "r"(pair));
  return x;
}

/// Two binary32 values rounded toward minus infinity and packed.
__device__ __forceinline__ std::uint32_t cvt_rm_f16x2(float low, float high) {
  std::uint32_t d;
  asm("{\n"
      ".reg .b16 l, h;\n"
      "cvt.rm.f16.f32 l, %1;\n"
      "cvt.rm.f16.f32 h, %2;\n"
      "mov.b32 %0, {l, h};\n"
      "}"
      : "=r"(d)
      : "f"(low), "f"(high));
  return d;
}

/// Values beyond the finite range become its ends; NaN passes.
__device__ __forceinline__ std::uint32_t cvt_rn_satfinite_f16x2(float low, float high) {
  std::uint32_t d;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

__device__ __forceinline__ std::uint32_t cvt_rn_satfinite_bf16x2(float low, float high) {
  std::uint32_t d;
  asm("cvt.rn.satfinite.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

/// 2^x, relative error below 2^-22; the twin of numerics::exp2_code_units (after its scaling).
__device__ __forceinline__ float ex2_approx(float x) {
  float d;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(x));
  return d;
}

}  // namespace openvc::cuda::ptx
