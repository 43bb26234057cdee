// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Packed binary16 and bfloat16 arithmetic on raw registers: two values a register, the lower half
// first. Subnormals are honoured at full rate; nothing here flushes.
// PTX ISA 9.0, 9.7.4, half precision floating point instructions.
namespace openvc::cuda::ptx {

/// fma (PTX 4.2, sm_53): a * b + c, one rounding.
__device__ __forceinline__ std::uint32_t fma_f16x2(std::uint32_t a, std::uint32_t b,
                                                   std::uint32_t c) {
  std::uint32_t d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

/// fma.relu (PTX 7.0, sm_80): max(a * b + c, 0), one rounding; NaN becomes the canonical NaN.
__device__ __forceinline__ std::uint32_t fma_relu_f16x2(std::uint32_t a, std::uint32_t b,
                                                        std::uint32_t c) {
  std::uint32_t d;
  asm("fma.rn.relu.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

/// sub (PTX 4.2, sm_53).
__device__ __forceinline__ std::uint32_t sub_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

/// max (PTX 7.0, sm_80). A NaN operand is ignored.
__device__ __forceinline__ std::uint32_t max_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("max.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

/// min (PTX 7.0, sm_80). A NaN operand is ignored.
__device__ __forceinline__ std::uint32_t min_f16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("min.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

/// max of bfloat16 (PTX 7.0, sm_80). A NaN operand is ignored.
__device__ __forceinline__ std::uint32_t max_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("max.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

/// min of bfloat16 (PTX 7.0, sm_80). A NaN operand is ignored.
__device__ __forceinline__ std::uint32_t min_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("min.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

}  // namespace openvc::cuda::ptx
