// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Packed 16-bit integers. PTX ISA 9.0, 9.7.1, integer arithmetic instructions.
namespace openvc::cuda::ptx {

/// max (PTX 8.0, sm_90). Before sm_90 in 16 bits each.
__device__ __forceinline__ std::uint32_t max_u16x2(std::uint32_t a, std::uint32_t b) {
#if __CUDA_ARCH__ >= 900
  std::uint32_t d;
  asm("max.u16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
#else
  return __vmaxu2(a, b);
#endif
}

}  // namespace openvc::cuda::ptx
