// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// Cluster barriers, proxy fences and the register pool. Sections are those of PTX ISA 9.0.
namespace openvc::cuda::ptx {

/// 9.7.13.4, barrier.cluster.arrive (PTX 7.8, sm_90).
__device__ __forceinline__ void barrier_cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

/// 9.7.13.4, barrier.cluster.wait (PTX 7.8, sm_90).
__device__ __forceinline__ void barrier_cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// 10, %cluster_ctarank (PTX 7.8, sm_90): rank of this block in its cluster.
__device__ __forceinline__ std::uint32_t cluster_ctarank() {
  std::uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// 9.7.13.5, fence.proxy.async (PTX 8.0, sm_90): orders ordinary stores to shared memory before
/// later reads by tensor cores and TMA.
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// 9.7.19.5, setmaxnreg.inc (PTX 8.0, sm_90a): executed by all warps of a warpgroup.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// 9.7.19.5, setmaxnreg.dec (PTX 8.0, sm_90a): executed by all warps of a warpgroup.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// 9.7.13, elect.sync (PTX 8.0, sm_90): true in one thread of a converged warp.
__device__ __forceinline__ bool elect_sync() {
  std::uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xFFFFFFFF;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(elected));
  return elected != 0;
}

}  // namespace openvc::cuda::ptx
