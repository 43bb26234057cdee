// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/host/tensor_map.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/synchronize.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "machine/machine.hpp"
#include "numerics/e4m3.hpp"

// Operands of products of a warpgroup, in memory and as tiles in shared memory.
namespace openvc::model {

namespace ptx = cuda::ptx;
using cuda::encode_tensor_map;
using cuda::TileSwizzle;

inline constexpr int kQueries = 64;
inline constexpr int kKeys = 128;
inline constexpr int kValues = 136;
inline constexpr int kDepth = 128;

/// Codes without the last two bits of the mantissa: sums of a tile's products that no tensor core
/// rounds.
inline constexpr std::uint8_t kShortCodes = 0xFC;

/// Codes of modest numbers, rows of `width` of them; `kept`: bits that may be set.
inline std::vector<std::uint8_t> codes(int rows, int width, unsigned seed, std::uint8_t kept) {
  std::vector<std::uint8_t> result(static_cast<std::size_t>(rows * width) + 16);
  for (std::uint8_t& code : result) {
    seed = seed * 1664525u + 1013904223u;
    code = static_cast<std::uint8_t>(((seed >> 31 << 7) | (0x28 + (seed >> 20) % 24)) & kept);
  }
  return result;
}

struct Operand {
  int rows;
  int width;
  std::vector<std::uint8_t> storage;

  Operand(int row_count, int row_bytes, unsigned seed, std::uint8_t kept = 0xFF)
      : rows(row_count), width(row_bytes), storage(codes(row_count, row_bytes, seed, kept)) {}
  [[nodiscard]] const std::uint8_t* data() const {
    return storage.data() + (16 - reinterpret_cast<std::uintptr_t>(storage.data()) % 16) % 16;
  }
  /// Of tiles of so many rows; 0: of all.
  [[nodiscard]] CUtensorMap map(int tile_rows = 0) const {
    const auto row = static_cast<std::uint64_t>(width);
    const auto count = static_cast<std::uint64_t>(rows);
    return encode_tensor_map(
        {.data = data(),
         .shape = {row, count, 1},
         .row_bytes = row,
         .plane_bytes = row * count,
         .box = {static_cast<std::uint32_t>(width),
                 static_cast<std::uint32_t>(tile_rows != 0 ? tile_rows : rows)}},
        width == 128 ? TileSwizzle::bytes_128 : TileSwizzle::bytes_32);
  }
  [[nodiscard]] double at(int row, int k) const {
    return double{numerics::e4m3_decode(data()[row * width + k])};
  }
  /// Sum over k of row i of this times row j of another, from `first` on.
  [[nodiscard]] double dot(int i, const Operand& b, int j, int first, int count) const {
    double sum = 0.0;
    for (int k = first; k < first + count; ++k) sum += at(i, k) * b.at(j, k);
    return sum;
  }
};

struct alignas(1024) Shared {
  std::array<std::uint8_t, kQueries * kDepth> a;
  alignas(1024) std::array<std::uint8_t, kValues * kDepth> b;
  std::uint64_t full;
};

/// Initialises the barrier and starts both copies; `wait` waits for them.
inline void load(Shared& shared, const CUtensorMap& a, const CUtensorMap& b, bool wait = true) {
  const std::uint32_t full = ptx::shared_address(&shared.full);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(full, a.box[0] * a.box[1] + b.box[0] * b.box[1]);
    ptx::cp_async_bulk_tensor_3d(ptx::shared_address(shared.a.data()), &a, full, 0, 0, 0);
    ptx::cp_async_bulk_tensor_3d(ptx::shared_address(shared.b.data()), &b, full, 0, 0, 0);
  }
  __syncthreads();
  if (wait) ptx::mbarrier_wait(full, 0);
}

template <ptx::Swizzle kSwizzle>
std::uint64_t descriptor(const void* tile) {
  return ptx::matrix_descriptor<kSwizzle>(ptx::shared_address(tile));
}

inline int warp() { return static_cast<int>(threadIdx.x) / 32; }

// PTX ISA, figure of the D fragment of wgmma m64nNk32: columns 8 j + 2 (lane % 4) and the next,
// rows 16 warp + lane / 4 and 8 further.
inline int d_row(int half) { return 16 * warp() + lane() / 4 + 8 * half; }
inline int d_column(int j) { return 8 * j + 2 * (lane() % 4); }

}  // namespace openvc::model
