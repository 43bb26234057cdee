// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda/attention/kernel_config.hpp"
#include "cuda/attention/storage.cuh"
#include "cuda/ptx/matrix_descriptor.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/synchronize.cuh"
#include "cuda/ptx/tcgen05.cuh"
#include "cuda/ptx/tensor_memory.cuh"
#include "cute/oracle/oracle.hpp"
#include "cute/random_bytes.hpp"
#include "machine/machine.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"

// Tensor memory of the model: who finds what where, as CuTe says.
namespace openvc::cute_oracle {
namespace {

namespace ptx = cuda::ptx;
using cuda::kStepBytes;

constexpr int kRows = 128;
constexpr int kDepth = 128;
constexpr std::uint32_t kSums = 128;  // columns of tensor memory: A comes first
constexpr unsigned kThreads = kRows;

using Places = std::vector<std::vector<TensorPlace>>;
using Codes = std::vector<std::uint8_t>;  // rows of kDepth

struct alignas(cuda::kTileAlignment) Shared {
  std::array<std::uint8_t, kRows * kDepth> a;
  alignas(cuda::kTileAlignment) std::array<std::uint8_t, 144 * kDepth> b;
  std::uint64_t done;
  std::uint32_t columns;
};

/// What the lanes have in their columns, 32 bits each, from the first column of something on.
using Contents = std::map<std::pair<int, int>, std::uint32_t>;

std::uint32_t bits_of(const Contents& contents, const TensorPlace& place) {
  const auto found = contents.find({place.lane, place.column});
  return found == contents.end() ? 0 : found->second >> place.bit;
}

/// Asked once: every thread wants it.
const Places& places_of(TensorAccess access) {
  static std::map<TensorAccess, Places> known;
  Places& places = known[access];
  if (places.empty()) places = tensor_access(access);
  return places;
}

/// What CuTe's place of every element says that a store by the thread's warp takes.
template <std::size_t kCount>
void fill(std::uint32_t (&registers)[kCount], TensorAccess access, const Contents& contents,
          int warp) {
  const std::vector<TensorPlace>& mine = places_of(access)[model::lane()];
  ASSERT_EQ(mine.size(), 2 * kCount);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    TensorPlace place = mine[i];
    place.lane += model::kWarpLanes * warp;
    registers[i / 2] |= (bits_of(contents, place) & 0xFFFFu) << (16 * (i % 2));
  }
}

/// tcgen05.st of 32 columns at once.
void store(std::uint32_t address, const Contents& contents, int warp) {
  std::uint32_t registers[32] = {};
  fill(registers, TensorAccess::store_x32, contents, warp);
  ptx::tcgen05_st_32x32b_x32(address, registers);
  ptx::tcgen05_wait_st();
}

/// The first 16 of them.
void store_half(std::uint32_t address, const Contents& contents, int warp) {
  std::uint32_t registers[16] = {};
  fill(registers, TensorAccess::store_x16, contents, warp);
  ptx::tcgen05_st_32x32b_x16(address, registers);
  ptx::tcgen05_wait_st();
}

/// Elements of 16 bits of registers, to where CuTe says that they come from.
template <class Register, std::size_t kCount>
void take(const Register (&registers)[kCount], const Places& places, int warp, int first_column,
          Contents& contents) {
  const std::vector<TensorPlace>& mine = places[model::lane()];
  ASSERT_EQ(mine.size(), 2 * kCount);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(registers[i / 2]) >> (16 * (i % 2)) & 0xFFFFu;
    contents[{mine[i].lane + model::kWarpLanes * warp, first_column + mine[i].column}] |=
        bits << mine[i].bit;
  }
}

/// Runs `body(shared, warp, address of tensor memory, address for the warp)` in four warps.
template <class Body>
void with_tensor_memory(const Body& body) {
  model::launch({.threads = kThreads}, [&] {
    auto& shared = ptx::static_shared<Shared>();
    const int warp = static_cast<int>(threadIdx.x) / model::kWarpLanes;
    if (warp == 0) {
      ptx::tcgen05_alloc<ptx::kTensorMemoryColumns>(ptx::shared_address(&shared.columns));
      ptx::tcgen05_relinquish_alloc_permit();
    }
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(ptx::shared_address(&shared.done), 1);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    const std::uint32_t columns = shared.columns;
    body(shared, warp, columns, columns + model::kWarpLanes * warp * ptx::kTensorMemoryLane);
    __syncthreads();
    if (warp == 0) ptx::tcgen05_dealloc<ptx::kTensorMemoryColumns>(columns);
  });
}

TEST(CuteTensorMemory, LoadsFindWhatStoresLeave) {
  Contents stored;
  Contents parts[4];  // of 32 columns
  Contents last;      // of 16
  for (int lane = 0; lane < kRows; ++lane) {
    for (int column = 0; column < 128; ++column) {
      stored[{lane, column}] =
          static_cast<std::uint32_t>(lane << 24 | column << 16 | (lane * 128 + column));
      parts[column / 32][{lane, column % 32}] = stored[{lane, column}];
      if (column >= 112) last[{lane, column - 112}] = stored[{lane, column}];
    }
  }
  Contents by_x8;
  Contents by_x32;
  Contents packed;
  with_tensor_memory([&](Shared&, int warp, std::uint32_t, std::uint32_t address) {
    for (int i = 0; i < 3; ++i) store(address + 32 * i, parts[i], warp);
    store_half(address + 96, parts[3], warp);
    store_half(address + 112, last, warp);
    float eight[8];
    ptx::tcgen05_ld_32x32b_x8(eight, address);
    ptx::tcgen05_wait_ld();
    take(eight, places_of(TensorAccess::load_x8), warp, 0, by_x8);
    float many[32];
    ptx::tcgen05_ld_32x32b_x32(many, address + 32);
    ptx::tcgen05_wait_ld();
    take(many, places_of(TensorAccess::load_x32), warp, 32, by_x32);
    std::uint32_t pairs[64];
    ptx::tcgen05_ld_32x32b_x64_pack_16b(pairs, address);
    ptx::tcgen05_wait_ld();
    take(pairs, places_of(TensorAccess::load_x64_pack_16b), warp, 0, packed);
  });
  EXPECT_EQ(by_x8.size(), std::size_t{kRows} * 8);
  EXPECT_EQ(by_x32.size(), std::size_t{kRows} * 32);
  EXPECT_EQ(packed.size(), std::size_t{kRows} * 128);
  for (const auto& [place, bits] : by_x8) EXPECT_EQ(bits, stored[place]);
  for (const auto& [place, bits] : by_x32) EXPECT_EQ(bits, stored[place]);
  for (const auto& [place, bits] : packed) EXPECT_EQ(bits, stored[place] & 0xFFFFu);
}

Codes random(int rows, std::uint32_t seed) {
  const RandomBytes bytes(rows * kDepth, seed);
  return {bytes.data(), bytes.data() + rows * kDepth};
}

Codes identity(int rows) {
  constexpr std::uint8_t kOne = 0x38;
  Codes result(static_cast<std::size_t>(rows * kDepth));
  for (int i = 0; i < kDepth; ++i) {
    result[i % kStepBytes * kDepth + i] = kOne;
  }
  return result;
}

/// Where the sums of a product lie is CuTe's, what is there is the model's.
void expect_product(BlockProduct product, bool a_in_tensor_memory, const Codes& a, const Codes& b,
                    int step) {
  const Tile a_tile = tile(kRows, kDepth);
  const Tile b_tile = tile(product.columns, kDepth);
  const Places places = tensor_a();
  Contents operand;
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < kDepth; ++k) {
      const TensorPlace& place = places[row][k];
      operand[{place.lane, place.column}] |= std::uint32_t{a[row * kDepth + k]} << place.bit;
    }
  }
  const std::uint32_t instruction = umma_instruction(product);
  Contents contents;
  with_tensor_memory([&](Shared& shared, int warp, std::uint32_t columns, std::uint32_t address) {
    if (threadIdx.x == 0) {
      for (std::size_t i = 0; i < a.size(); ++i) shared.a.at(a_tile.offsets[i]) = a[i];
      for (std::size_t i = 0; i < b.size(); ++i) shared.b.at(b_tile.offsets[i]) = b[i];
      ptx::fence_proxy_async_shared();
    }
    store(address, operand, warp);
    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();
    if (threadIdx.x == 0) {
      ptx::tcgen05_fence_after_thread_sync();
      const auto tile_at = [&](const auto& start) {
        return ptx::advance_descriptor(ptx::tcgen05_matrix_descriptor<ptx::Swizzle::bytes_128>(
                                           ptx::shared_address(start.data())),
                                       static_cast<std::uint32_t>(step * kStepBytes));
      };
      if (a_in_tensor_memory) {
        const auto first = static_cast<std::uint32_t>(places[0][step * kStepBytes].column);
        ptx::tcgen05_mma_f8f6f4_ts(columns + kSums, columns + first, tile_at(shared.b), instruction,
                                   false);
      } else {
        ptx::tcgen05_mma_f8f6f4_ss(columns + kSums, tile_at(shared.a), tile_at(shared.b),
                                   instruction, false);
      }
      ptx::tcgen05_commit(ptx::shared_address(&shared.done));
    }
    ptx::mbarrier_wait(ptx::shared_address(&shared.done), 0);
    ptx::tcgen05_fence_after_thread_sync();
    for (int first = 0; first < product.columns; first += 8) {
      float values[8];
      ptx::tcgen05_ld_32x32b_x8(values, address + kSums + first);
      ptx::tcgen05_wait_ld();
      take(values, places_of(TensorAccess::load_x8), warp, first, contents);
    }
    ptx::tcgen05_fence_before_thread_sync();
  });
  const Places sums = tensor_sums(product, a_in_tensor_memory);
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < product.columns; ++column) {
      float expected = 0.0f;  // one of both is the identity
      for (int k = step * kStepBytes; k < (step + 1) * kStepBytes; ++k) {
        expected += numerics::e4m3_decode(a[row * kDepth + k]) *
                    numerics::e4m3_decode(b[column * kDepth + k]);
      }
      const std::uint32_t bits = bits_of(contents, sums[row][column]);
      const float found = product.binary32
                              ? numerics::float_from_bits(bits)
                              : numerics::half_to_float(static_cast<std::uint16_t>(bits));
      ASSERT_EQ(found, expected) << "row " << row << ", column " << column << ", k-step " << step;
    }
  }
}

TEST(CuteTensorMemory, ProductsOfSharedMemory) {
  for (const BlockProduct product : {BlockProduct{false, 128}, BlockProduct{true, 144}}) {
    for (int step = 0; step < kDepth / kStepBytes; ++step) {
      expect_product(product, false, random(kRows, 1), identity(product.columns), step);
      expect_product(product, false, identity(kRows), random(product.columns, 2), step);
    }
  }
}

TEST(CuteTensorMemory, ProductsWithAInTensorMemory) {
  for (int step = 0; step < kDepth / kStepBytes; ++step) {
    expect_product({true, 144}, true, random(kRows, 3), identity(144), step);
    expect_product({true, 144}, true, identity(kRows), random(144, 4), step);
  }
}

}  // namespace
}  // namespace openvc::cute_oracle
