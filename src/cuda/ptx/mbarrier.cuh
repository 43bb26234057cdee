// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// PTX ISA 9.0, 9.7.13.15, mbarrier. Barriers are named by their shared-window address, which is
// that of this block unless the function says cluster.
namespace openvc::cuda::ptx {

/// mbarrier.init (PTX 7.0, sm_80).
__device__ __forceinline__ void mbarrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// fence.mbarrier_init (PTX 8.0, sm_90): makes initialised barriers visible to the other blocks of
/// the cluster and to TMA.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// mbarrier.arrive (PTX 7.0, sm_80).
__device__ __forceinline__ void mbarrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// mapa (PTX 7.8, sm_90): address of the same shared-memory location in another block of the
/// cluster.
__device__ __forceinline__ std::uint32_t mapa(std::uint32_t address, std::uint32_t cluster_rank) {
  std::uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(cluster_rank));
  return remote;
}

/// mbarrier.arrive on a barrier of any block of the cluster, an address from mapa (PTX 8.0, sm_90).
///
/// Block scope on purpose: what the barrier orders is the reading of a tile by wgmma, complete
/// since its wait, against TMA. Cluster scope would make every arrival a full memory fence (MEMBAR
/// in the main loop), which costs more than multicast saves.
__device__ __forceinline__ void mbarrier_arrive_cluster(std::uint32_t remote_barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote_barrier) : "memory");
}

/// mbarrier.arrive.expect_tx (PTX 8.0, sm_90): arrives and expects this many bytes.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(std::uint32_t barrier,
                                                          std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

/// The same on a barrier of any block of the cluster, an address from mapa.
__device__ __forceinline__ void mbarrier_arrive_expect_tx_cluster(std::uint32_t remote_barrier,
                                                                  std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%0], %1;" ::"r"(remote_barrier),
               "r"(bytes)
               : "memory");
}

/// mbarrier.try_wait.parity (PTX 7.8, sm_90): suspends the thread for a limited time. Before sm_90
/// mbarrier.test_wait.parity (PTX 7.1, sm_80), which does not suspend it.
__device__ __forceinline__ bool mbarrier_try_wait_parity(std::uint32_t barrier,
                                                         std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
#else
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
#endif
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

/// Returns when the phase with this parity has completed.
__device__ __forceinline__ void mbarrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  while (!mbarrier_try_wait_parity(barrier, parity)) {
  }
}

}  // namespace openvc::cuda::ptx
