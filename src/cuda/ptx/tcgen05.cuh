// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/ptx/instruction_descriptor.cuh"

// PTX ISA 9.0, 9.7.16.10, tcgen05.mma and tcgen05.commit (PTX 8.6, sm_100a and sm_103a):
// asynchronous matrix products of a block, D[M, N] (+)= A[M, 32] B[32, N] of E4M3, D in tensor
// memory. One thread issues; products of a thread run in the order of their issue. `accumulate`
// false ignores the old D.
namespace openvc::cuda::ptx {

/// A and B in shared memory.
__device__ __forceinline__ void tcgen05_mma_f8f6f4_ss(std::uint32_t d, std::uint64_t a,
                                                      std::uint64_t b,
                                                      std::uint32_t instruction_descriptor,
                                                      bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %4, 0;\n"
      "tcgen05.mma.cta_group::1.kind::f8f6f4 [%0], %1, %2, %3, p;\n"
      "}\n" ::"r"(d),
      "l"(a), "l"(b), "r"(instruction_descriptor), "r"(static_cast<int>(accumulate))
      : "memory");
}

/// A in tensor memory: row m in lane m, four values a column.
__device__ __forceinline__ void tcgen05_mma_f8f6f4_ts(std::uint32_t d, std::uint32_t a,
                                                      std::uint64_t b,
                                                      std::uint32_t instruction_descriptor,
                                                      bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %4, 0;\n"
      "tcgen05.mma.cta_group::1.kind::f8f6f4 [%0], [%1], %2, %3, p;\n"
      "}\n" ::"r"(d),
      "r"(a), "l"(b), "r"(instruction_descriptor), "r"(static_cast<int>(accumulate))
      : "memory");
}

/// tcgen05.commit: arrives on a barrier of this block when all products that this thread has issued
/// so far are done. Implies tcgen05.fence::before_thread_sync.
__device__ __forceinline__ void tcgen05_commit(std::uint32_t barrier) {
  asm volatile(
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
      : "memory");
}

/// The same on the barriers at this offset of every block of the cluster in `block_mask`.
__device__ __forceinline__ void tcgen05_commit_multicast(std::uint32_t barrier,
                                                         std::uint16_t block_mask) {
  asm volatile(
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"
      " [%0], %1;" ::"r"(barrier),
      "h"(block_mask)
      : "memory");
}

}  // namespace openvc::cuda::ptx
