// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda.h>

#include <cstdint>

namespace openvc::cuda {

/// Tile of a three-dimensional byte tensor for TMA, innermost dimension first.
struct ByteTensor {
  const void* data = nullptr;     // 16-byte aligned
  std::uint64_t shape[3] = {};    // bytes, rows, planes
  std::uint64_t row_bytes = 0;    // multiple of 16
  std::uint64_t plane_bytes = 0;  // multiple of 16
  std::uint32_t box[2] = {};      // bytes, rows of one tile
};

enum class TileSwizzle { bytes_32, bytes_128 };

/// Encodes a tensor map through the driver entry point; there is no link to libcuda. Elements
/// outside the tensor read as zero. Throws openvc::Error with the answer of the driver.
CUtensorMap encode_tensor_map(const ByteTensor& tensor, TileSwizzle swizzle);

}  // namespace openvc::cuda
