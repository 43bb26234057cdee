// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/host/tensor_map.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/synchronize.cuh"
#include "cuda/ptx/tma.cuh"
#include "run_kernel.hpp"

// Tiles that TMA copies, against formulas in rows and columns; and its faults.
namespace openvc::model {
namespace {

using namespace cuda;
using testing::HasSubstr;

constexpr int kRows = 24;
constexpr Schedule kLate{1, Turns::random, Engines::lazy};

/// Bytes that tell where they come from; never zero.
struct Tensor {
  static constexpr int kPlanes = 3;
  static constexpr int kTensorRows = 40;
  int width;
  std::vector<std::byte> bytes;

  explicit Tensor(int row_bytes) : width(row_bytes), bytes(kPlanes * kTensorRows * row_bytes + 16) {
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(1 + i * 7 % 251);
  }
  [[nodiscard]] const std::byte* data() const {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    return bytes.data() + (16 - address % 16) % 16;
  }
  [[nodiscard]] ByteTensor describe() const {
    const auto row = static_cast<std::uint64_t>(width);
    return {.data = data(),
            .shape = {row, kTensorRows, kPlanes},
            .row_bytes = row,
            .plane_bytes = row * kTensorRows,
            .box = {static_cast<std::uint32_t>(width), kRows}};
  }
  /// Zero outside.
  [[nodiscard]] std::byte at(int x, int y, int z) const {
    if (x < 0 || x >= width || y < 0 || y >= kTensorRows || z < 0 || z >= kPlanes) return {};
    return data()[(z * kTensorRows + y) * width + x];
  }
};

struct alignas(1024) Shared {
  std::array<std::byte, kRows * 128> tile;
  std::uint64_t full;
};

/// Where a byte of a row lies in its 16-byte chunks: those of row r change places by r % 8, in a
/// narrow tile by the fourth row.
std::size_t place(int width, int row, int column) {
  const int chunk = column / 16;
  const int moved = width == 128 ? chunk ^ row % 8 : chunk ^ row / 4 % 2;
  return static_cast<std::size_t>(row * width + moved * 16 + column % 16);
}

constexpr std::size_t kMostBlocks = 2;
using Tiles = std::array<std::array<std::byte, kRows * 128>, kMostBlocks>;

/// A tile into each block of the cluster, one for each or the first one's for all.
Tiles copy_tiles(const CUtensorMap& map, TileSwizzle swizzle, std::array<int, 3> at, bool multicast,
                 const Schedule& schedule) {
  Tiles tiles{};
  const std::uint32_t bytes = kRows * (swizzle == TileSwizzle::bytes_128 ? 128 : 32);
  const auto kernel = [&] {
    auto& shared = ptx::static_shared<Shared>();
    const std::uint32_t full = ptx::shared_address(&shared.full);
    const std::uint32_t tile = ptx::shared_address(shared.tile.data());
    const unsigned rank = ptx::cluster_ctarank();
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(full, 1);
      ptx::fence_mbarrier_init();
      ptx::mbarrier_arrive_expect_tx(full, bytes);
    }
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
    if (threadIdx.x == 0 && multicast && rank == 0) {
      ptx::cp_async_bulk_tensor_3d_multicast(tile, &map, full, 3, at[0], at[1], at[2]);
    }
    if (threadIdx.x == 0 && !multicast) {
      ptx::cp_async_bulk_tensor_3d(tile, &map, full, at[0], at[1] + static_cast<int>(rank), at[2]);
    }
    ptx::mbarrier_wait(full, 0);
    tiles.at(rank) = shared.tile;
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
  };
  EXPECT_EQ(fault_of({.blocks = 2, .threads = 32, .cluster_size = 2}, schedule, kernel), "");
  return tiles;
}

TEST(ModelTileCopy, SwizzlesAndZeros) {
  for (const TileSwizzle swizzle : {TileSwizzle::bytes_128, TileSwizzle::bytes_32}) {
    const int width = swizzle == TileSwizzle::bytes_128 ? 128 : 32;
    const Tensor tensor(width);
    const CUtensorMap map = encode_tensor_map(tensor.describe(), swizzle);
    // Inside; beyond the last row; before the first; a plane that is not there.
    for (const std::array<int, 3> at : {std::array{0, 5, 1}, {0, 30, 2}, {-16, -3, 0}, {0, 0, 3}}) {
      for (const bool multicast : {false, true}) {
        for (const Schedule& schedule : kAllSchedules) {
          const Tiles tiles = copy_tiles(map, swizzle, at, multicast, schedule);
          for (int rank = 0; rank < 2; ++rank) {
            for (int row = 0; row < kRows; ++row) {
              for (int column = 0; column < width; ++column) {
                ASSERT_EQ(tiles.at(static_cast<std::size_t>(rank)).at(place(width, row, column)),
                          tensor.at(at[0] + column, at[1] + row + (multicast ? 0 : rank), at[2]))
                    << schedule.describe() << " rank " << rank << " row " << row << " column "
                    << column;
              }
            }
          }
        }
      }
    }
  }
}

// ---- faults -------------------------------------------------------------------------------------

/// One thread that copies a tile to `shift` bytes behind the tile's place, and does not wait.
std::string fault_of_copy(const CUtensorMap& map, std::uint32_t shift, std::uint16_t mask,
                          int copies = 1) {
  const auto kernel = [&] {
    auto& shared = ptx::static_shared<Shared>();
    const std::uint32_t full = ptx::shared_address(&shared.full);
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(full, kRows * 128 * static_cast<std::uint32_t>(copies));
    for (int i = 0; i < copies; ++i) {
      ptx::cp_async_bulk_tensor_3d_multicast(ptx::shared_address(shared.tile.data()) + shift, &map,
                                             full, mask, 0, 0, 0);
    }
    ptx::mbarrier_wait(full, 0);
  };
  return fault_of({.threads = 1}, kLate, kernel);
}

TEST(ModelTileCopy, FaultsOfPlacesAndMasks) {
  const Tensor tensor(128);
  const CUtensorMap map = encode_tensor_map(tensor.describe(), TileSwizzle::bytes_128);
  EXPECT_EQ(fault_of_copy(map, 0, 1), "");
  EXPECT_THAT(fault_of_copy(map, 64, 1), HasSubstr("a tile at 0x440, no multiple of 128"));
  EXPECT_THAT(fault_of_copy(map, kSharedBytes - 128, 1), HasSubstr("do not lie in shared memory"));
  EXPECT_THAT(fault_of_copy(map, 0, 2), HasSubstr("a mask of blocks 0x2 in a cluster of 1"));
  EXPECT_THAT(fault_of_copy({}, 0, 1), HasSubstr("the tensor map has not been encoded"));
  EXPECT_THAT(fault_of_copy(map, 0, 1, 2),
              HasSubstr("writes to 0x400 of block 0, as does a copy in flight of warp 0"));
}

TEST(ModelTileCopy, TensorMapsThatADriverRefuses) {
  const Tensor tensor(128);
  ByteTensor odd = tensor.describe();
  odd.row_bytes = 120;
  EXPECT_THROW((void)encode_tensor_map(odd, TileSwizzle::bytes_128), Fault);
  EXPECT_THROW((void)encode_tensor_map(tensor.describe(), TileSwizzle::bytes_32), Fault);
}

TEST(ModelTileCopy, WhatACopyWritesIsPoisonUntilItHasArrived) {
  const Tensor tensor(128);
  const CUtensorMap map = encode_tensor_map(tensor.describe(), TileSwizzle::bytes_128);
  std::byte early{};
  const auto kernel = [&] {
    auto& shared = ptx::static_shared<Shared>();
    const std::uint32_t full = ptx::shared_address(&shared.full);
    shared.tile[0] = std::byte{1};
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(full, kRows * 128);
    ptx::cp_async_bulk_tensor_3d(ptx::shared_address(shared.tile.data()), &map, full, 0, 0, 0);
    early = shared.tile[0];  // without a wait
    ptx::mbarrier_wait(full, 0);
  };
  EXPECT_EQ(fault_of({.threads = 1}, kLate, kernel), "");
  EXPECT_EQ(early, std::byte{kPoison});
}

TEST(ModelTileCopy, BlockThatExitsBeforeItsTileHasArrived) {
  const Tensor tensor(128);
  const CUtensorMap map = encode_tensor_map(tensor.describe(), TileSwizzle::bytes_128);
  const auto kernel = [&] {
    auto& shared = ptx::static_shared<Shared>();
    const std::uint32_t full = ptx::shared_address(&shared.full);
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(full, kRows * 128);
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
    if (ptx::cluster_ctarank() == 0 && threadIdx.x == 0) {
      ptx::cp_async_bulk_tensor_3d_multicast(ptx::shared_address(shared.tile.data()), &map, full, 3,
                                             0, 0, 0);
    }
    if (ptx::cluster_ctarank() == 0) ptx::mbarrier_wait(full, 0);
  };
  const Grid pair{.blocks = 2, .threads = 32, .cluster_size = 2};
  const std::string fault = fault_of(pair, {0, Turns::in_order, Engines::lazy}, kernel);
  EXPECT_THAT(fault,
              HasSubstr("test kernel: cp.async.bulk.tensor.3d.multicast of block 0 warp 0: "
                        "block 1 has ended, and the copy to its shared memory is in flight"));
}

}  // namespace
}  // namespace openvc::model
