// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda.h>

#include <cstdint>

// TMA, the tensor memory accelerator: PTX ISA 9.0, 9.7.9.25 to 9.7.9.27, cp.async.bulk and
// cp.async.bulk.tensor (PTX 8.0, sm_90). Completion is counted in bytes on an mbarrier. Coordinates
// are in elements, innermost first.
namespace openvc::cuda::ptx {

/// cp.async.bulk: contiguous bytes, global to shared memory of this block. Addresses and size are
/// multiples of 16.
__device__ __forceinline__ void cp_async_bulk(std::uint32_t destination, const void* source,
                                              std::uint32_t bytes, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(destination),
      "l"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

/// prefetch.tensormap: fetches a tensor map ahead of its first use.
__device__ __forceinline__ void prefetch_tensormap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// cp.async.bulk.tensor.3d: a tile, global to shared memory of this block.
__device__ __forceinline__ void cp_async_bulk_tensor_3d(std::uint32_t destination,
                                                        const CUtensorMap* map,
                                                        std::uint32_t barrier, int x, int y,
                                                        int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}

/// cp.async.bulk.tensor.3d.multicast: to the same shared-memory offset of every block of the
/// cluster in `block_mask`; each of them counts the bytes on its own barrier at the same offset.
__device__ __forceinline__ void cp_async_bulk_tensor_3d_multicast(std::uint32_t destination,
                                                                  const CUtensorMap* map,
                                                                  std::uint32_t barrier,
                                                                  std::uint16_t block_mask, int x,
                                                                  int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(destination),
      "l"(map), "r"(barrier), "h"(block_mask), "r"(x), "r"(y), "r"(z)
      : "memory");
}

}  // namespace openvc::cuda::ptx
