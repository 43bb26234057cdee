// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda.h>

#include <cstdint>

#include "machine/engines.hpp"

namespace openvc::cuda::ptx {

inline void cp_async_bulk(std::uint32_t destination, const void* source, std::uint32_t bytes,
                          std::uint32_t barrier) {
  model::copy_bulk(destination, source, bytes, barrier);
}

inline void prefetch_tensormap(const CUtensorMap*) {}

inline void cp_async_bulk_tensor_3d(std::uint32_t destination, const CUtensorMap* map,
                                    std::uint32_t barrier, int x, int y, int z) {
  model::copy_tile(*map, {.instruction = "cp.async.bulk.tensor.3d",
                          .destination = destination,
                          .barrier = barrier,
                          .blocks = 0,
                          .coordinates = {x, y, z}});
}

inline void cp_async_bulk_tensor_3d_multicast(std::uint32_t destination, const CUtensorMap* map,
                                              std::uint32_t barrier, std::uint16_t block_mask,
                                              int x, int y, int z) {
  model::copy_tile(*map, {.instruction = "cp.async.bulk.tensor.3d.multicast",
                          .destination = destination,
                          .barrier = barrier,
                          .blocks = block_mask,
                          .coordinates = {x, y, z}});
}

}  // namespace openvc::cuda::ptx
