// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Thread blocks that meet in device memory. PTX ISA 9.0, 9.7.13, atom.
namespace openvc::cuda::ptx {

/// atom.add (PTX 6.0, sm_70): adds to a counter. What a thread has seen before its addition is seen
/// by a thread whose addition comes later. Returns the value before.
__device__ __forceinline__ std::uint32_t atom_add_acq_rel_gpu(std::uint32_t* address,
                                                              std::uint32_t value) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(address), "r"(value)
               : "memory");
  return before;
}

}  // namespace openvc::cuda::ptx
