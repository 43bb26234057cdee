// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/host/tensor_map.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "machine/machine.hpp"

namespace openvc::cuda {

CUtensorMap encode_tensor_map(const ByteTensor& tensor, TileSwizzle swizzle) {
  constexpr std::uint64_t kUnit = 16;  // of addresses, strides and rows of a tile
  constexpr std::uint32_t kMostBox = 256;
  CUtensorMap map;
  map.data = static_cast<const std::byte*>(tensor.data);
  std::copy_n(tensor.shape, 3, map.shape);
  map.strides[0] = tensor.row_bytes;
  map.strides[1] = tensor.plane_bytes;
  map.box[0] = tensor.box[0];
  map.box[1] = tensor.box[1];
  map.box[2] = 1;
  map.swizzle_bytes = swizzle == TileSwizzle::bytes_128 ? 128 : 32;
  const auto is_aligned = [](std::uint64_t x) { return x % kUnit == 0; };
  const bool accepted =
      is_aligned(reinterpret_cast<std::uintptr_t>(map.data)) &&
      std::ranges::all_of(map.strides, is_aligned) && is_aligned(map.box[0]) &&
      map.box[0] <= map.swizzle_bytes &&
      std::ranges::all_of(map.box, [](auto x) { return x >= 1 && x <= kMostBox; }) &&
      std::ranges::all_of(map.shape, [](auto x) { return x >= 1 && x <= UINT32_MAX; });
  if (!accepted) throw model::Fault("encode_tensor_map: the driver would refuse this tensor map");
  return map;
}

}  // namespace openvc::cuda
