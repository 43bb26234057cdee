// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Byte permutation. PTX ISA 9.0, 9.7.9, data movement and conversion instructions.
namespace openvc::cuda::ptx {

/// prmt (PTX 2.0): byte i of the result is the byte of {b, a} that digit i of the selector counts,
/// bytes 0 to 3 in a, 4 to 7 in b.
template <int kSelector>
__device__ __forceinline__ std::uint32_t prmt(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "n"(kSelector));
  return d;
}

}  // namespace openvc::cuda::ptx
