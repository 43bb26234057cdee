// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// PTX ISA 9.0, 9.7.9.8, ld (PTX 1.0), and 9.7.9.25.3, cp.async.
namespace openvc::cuda::ptx {

/// ld.global.v4 under a predicate: zero, without an access, unless `present`. 16-byte aligned.
///
/// Every compiler moves an ordinary or a non-coherent load down to its first use where that saves
/// registers, so that loads which could be in flight together wait for each other. This one stays
/// above the next __syncthreads() or griddepcontrol_wait().
__device__ __forceinline__ uint4 ld_global_v4(const void* address, bool present) {
  uint4 quad;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %5, 0;\n"
      "mov.b32 %0, 0;\n"
      "mov.b32 %1, 0;\n"
      "mov.b32 %2, 0;\n"
      "mov.b32 %3, 0;\n"
      "@p ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "=&r"(quad.x), "=&r"(quad.y), "=&r"(quad.z), "=&r"(quad.w)
      : "l"(address), "r"(static_cast<std::uint32_t>(present))
      : "memory");
  return quad;
}

/// cp.async.cg (PTX 7.0, sm_80): 16 bytes from global to shared memory, past L1; zeros, without a
/// read, unless `present`. Both addresses are 16-byte aligned.
__device__ __forceinline__ void cp_async_16(std::uint32_t destination, const void* source,
                                            bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source),
               "r"(present ? 16u : 0u)
               : "memory");
}

/// Ends a group of the thread's copies.
__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits for all groups of the thread but the last kPending.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// cp.async.mbarrier.arrive.noinc (PTX 7.0, sm_80): arrives at a barrier of this block once all
/// copies that the thread has begun are done; one of the arrivals that the barrier counts.
__device__ __forceinline__ void cp_async_mbarrier_arrive_noinc(std::uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/// Makes the compiler compute an address here, not where it is used.
__device__ __forceinline__ void pin_address(const void*& address) {
  asm volatile("" : "+l"(address));
}

}  // namespace openvc::cuda::ptx
