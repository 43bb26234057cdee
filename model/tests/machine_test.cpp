// SPDX-License-Identifier: BSD-3-Clause
#include "machine/machine.hpp"

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "cuda/ptx/load.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "run_kernel.hpp"

// What the machine does, and the faults that it must see.
namespace openvc::model {
namespace {

using testing::HasSubstr;

constexpr unsigned kAllLanes = 0xFFFF'FFFFu;
constexpr std::uint64_t kSeeds[] = {0, 1, 2, 3, 4, 5};

TEST(Machine, ThreadsSeeEachOtherBehindABarrier) {
  for (const std::uint64_t seed : kSeeds) {
    std::array<unsigned, 96> seen{};
    EXPECT_EQ(fault_of(
                  96,
                  [&] {
                    auto& shared = cuda::ptx::static_shared<std::array<unsigned, 96>>();
                    shared[threadIdx.x] = 7 * threadIdx.x;
                    __syncthreads();
                    seen[threadIdx.x] = shared[95 - threadIdx.x];
                  },
                  seed),
              "");
    for (unsigned i = 0; i < 96; ++i) EXPECT_EQ(seen[i], 7 * (95 - i));
  }
}

TEST(Machine, SharedMemoryStartsPoisoned) {
  std::uint32_t seen = 0;
  EXPECT_EQ(fault_of(1, [&] { seen = cuda::ptx::static_shared<std::uint32_t>(); }), "");
  EXPECT_EQ(seen, 0xFFFF'FFFFu);
}

TEST(Machine, ShufflesAndVotes) {
  for (const std::uint64_t seed : kSeeds) {
    std::array<int, 32> sums{};
    unsigned odd = 0;
    EXPECT_EQ(fault_of(
                  32,
                  [&] {
                    int x = static_cast<int>(threadIdx.x);
                    for (int i = 1; i < 32; i *= 2) x += __shfl_xor_sync(kAllLanes, x, i);
                    sums[threadIdx.x] = x;
                    odd = __ballot_sync(kAllLanes, threadIdx.x % 2 == 1);
                  },
                  seed),
              "");
    for (const int sum : sums) EXPECT_EQ(sum, 31 * 32 / 2);
    EXPECT_EQ(odd, 0xAAAA'AAAAu);
  }
}

TEST(Machine, MissingBarrierChangesResults) {
  bool differs = false;
  for (const std::uint64_t seed : kSeeds) {
    set_seed(seed);
    unsigned seen = 0;
    launch({.threads = 64}, [&] {
      auto& shared = cuda::ptx::static_shared<std::array<unsigned, 64>>();
      shared[threadIdx.x] = 1;
      if (threadIdx.x == 0) seen = shared[63];  // of another warp
    });
    differs |= seen != 1;
  }
  EXPECT_TRUE(differs);
}

TEST(Machine, CopyThatNobodyWaitedForIsPoison) {
  alignas(16) const std::array<std::uint32_t, 4> source{1, 2, 3, 4};
  const auto first_word = [&](bool waits) {
    set_seed(1);
    std::uint32_t seen = 0;
    launch({.threads = 1}, [&] {
      auto& target = cuda::ptx::static_shared<uint4>();
      cuda::ptx::cp_async_16(cuda::ptx::shared_address(&target), source.data(), true);
      cuda::ptx::cp_async_commit_group();
      if (waits) cuda::ptx::cp_async_wait_group<0>();
      seen = target.x;
    });
    return seen;
  };
  EXPECT_EQ(first_word(true), 1u);
  EXPECT_EQ(first_word(false), 0xFFFF'FFFFu);
}

TEST(Machine, BarrierThatNotAllReachIsADeadlock) {
  const std::string fault = fault_of(64, [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else {
      (void)__ballot_sync(kAllLanes, true);
      if (threadIdx.x == 40) (void)__shfl_sync(kAllLanes, 1, 0);
    }
  });
  EXPECT_THAT(fault, HasSubstr("test kernel, block 0: deadlock"));
  EXPECT_THAT(fault, HasSubstr("warp 1 is in shfl.idx with 1 of 32 lanes"));
}

TEST(Machine, LanesInUnlikeInstructionsAreAFault) {
  const std::string fault = fault_of(32, [] {
    if (threadIdx.x < 16) {
      (void)__ballot_sync(kAllLanes, true);
    } else {
      (void)__shfl_sync(kAllLanes, 1, 0);
    }
  });
  EXPECT_THAT(fault, HasSubstr("shfl.idx while other lanes of the warp are in vote.ballot"));
}

TEST(Machine, MaskWithoutTheLaneIsAFault) {
  EXPECT_THAT(fault_of(32, [] { (void)__ballot_sync(0xFFFFu, true); }),
              HasSubstr("thread 16: vote.ballot with a mask that leaves out the lane itself"));
}

TEST(Machine, AccessesThatAreNotAlignedAreFaults) {
  alignas(16) const std::array<std::uint32_t, 8> memory{};
  EXPECT_THAT(fault_of(1, [&] { (void)cuda::ptx::ld_global_v4(&memory[1], true); }),
              HasSubstr("no multiple of 16"));
  EXPECT_EQ(fault_of(1, [&] { (void)cuda::ptx::ld_global_v4(&memory[1], false); }), "");
  EXPECT_THAT(fault_of(32,
                       [] {
                         std::uint32_t d[4];
                         auto& shared = cuda::ptx::static_shared<std::array<uint4, 64>>();
                         cuda::ptx::ldmatrix_x4(d, cuda::ptx::shared_address(shared.data()) + 8);
                       }),
              HasSubstr("ldmatrix: a row that starts at no multiple of 16"));
}

TEST(Machine, AddressesOutsideOfSharedMemoryAreFaults) {
  int local = 0;
  EXPECT_THAT(fault_of(1, [&] { (void)cuda::ptx::shared_address(&local); }),
              HasSubstr("outside of shared memory"));
  EXPECT_THAT(fault_of(1, [] { (void)shared_pointer(0x400 + kSharedBytes - 8, 16); }),
              HasSubstr("outside of shared memory"));
}

TEST(Machine, MoreSharedMemoryThanThereIsIsAFault) {
  EXPECT_THAT(
      fault_of(1, [] { (void)cuda::ptx::static_shared<std::array<char, kSharedBytes + 1>>(); }),
      HasSubstr("more than 232448 bytes of shared memory"));
}

// The fragments of PTX's figures: D = A B with A a permutation of rows and B of distinct numbers.
TEST(Machine, MmaFragments) {
  std::array<std::array<float, 8>, 16> d{};
  EXPECT_EQ(
      fault_of(32,
               [&] {
                 const int group = lane() / 4;
                 const int quad = lane() % 4;
                 const auto bits = [](float x) {
                   return static_cast<std::uint32_t>(numerics::float_to_half(x));
                 };
                 // A[i][k] = 1 where k = 15 - i; B[k][n] = 8 k + n.
                 const auto a = [&](int i, int k) { return bits(k == 15 - i ? 1.0f : 0.0f); };
                 const auto b = [&](int k, int n) { return bits(static_cast<float>(8 * k + n)); };
                 const auto pair = [](std::uint32_t low, std::uint32_t high) {
                   return low | high << 16;
                 };
                 const int k = 2 * quad;
                 const std::uint32_t left[4] = {pair(a(group, k), a(group, k + 1)),
                                                pair(a(group + 8, k), a(group + 8, k + 1)),
                                                pair(a(group, k + 8), a(group, k + 9)),
                                                pair(a(group + 8, k + 8), a(group + 8, k + 9))};
                 float sums[4] = {0.5f, 0.5f, 0.5f, 0.5f};
                 cuda::ptx::mma_m16n8k16_f16(sums, left, pair(b(k, group), b(k + 1, group)),
                                             pair(b(k + 8, group), b(k + 9, group)));
                 for (int i = 0; i < 4; ++i) {
                   d[static_cast<std::size_t>(group + 8 * (i / 2))]
                    [static_cast<std::size_t>(2 * quad + i % 2)] = sums[i];
                 }
               }),
      "");
  for (int i = 0; i < 16; ++i) {
    for (int n = 0; n < 8; ++n) {
      EXPECT_EQ(d[static_cast<std::size_t>(i)][static_cast<std::size_t>(n)],
                static_cast<float>(8 * (15 - i) + n) + 0.5f);
    }
  }
}

}  // namespace
}  // namespace openvc::model
