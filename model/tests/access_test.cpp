// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/tcgen05.cuh"
#include "cuda/ptx/tma.cuh"
#include "gpu/device_buffer.hpp"
#include "run_kernel.hpp"

// Ordinary loads and stores, which the compiler announces: races with copies and with each other,
// and what lies outside of buffers. Every schedule sees them.
namespace openvc::model {
namespace {

using namespace cuda;
using testing::AnyOf;
using testing::HasSubstr;

constexpr unsigned kThreads = 64;

struct Shared {
  alignas(16) std::array<std::uint32_t, kThreads> words;
  std::uint64_t full;
  std::uint64_t empty;
};

Shared& shared() { return ptx::static_shared<Shared>(); }
std::uint32_t full() { return ptx::shared_address(&shared().full); }
std::uint32_t empty() { return ptx::shared_address(&shared().empty); }

void begin() {
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full(), 1);
    ptx::mbarrier_init(empty(), 32);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
}

/// Thread 0 copies numbers into the words.
void copy() {
  alignas(16) static const std::array<std::uint32_t, kThreads> source{1, 2, 3};
  ptx::mbarrier_arrive_expect_tx(full(), sizeof(source));
  ptx::cp_async_bulk(ptx::shared_address(shared().words.data()), source.data(), sizeof(source),
                     full());
}

template <class Kernel, class Matcher>
void expect_fault(const Kernel& kernel, const Matcher& matcher) {
  for (const Schedule& schedule : kAllSchedules) {
    Grid grid;
    grid.threads = kThreads;
    EXPECT_THAT(fault_of(grid, schedule, kernel), matcher) << schedule.describe();
  }
}

TEST(ModelAccess, LoadsBehindABarrier) {
  const auto kernel = [](bool synchronizes) {
    return [synchronizes] {
      shared().words[threadIdx.x] = threadIdx.x;
      if (synchronizes) __syncthreads();
      volatile std::uint32_t seen = shared().words[kThreads - 1 - threadIdx.x];
      (void)seen;
    };
  };
  expect_fault(kernel(true), "");
  expect_fault(kernel(false), HasSubstr("and nothing orders an access of warp"));
}

TEST(ModelAccess, StoresBehindLoads) {
  const auto kernel = [](bool synchronizes) {
    return [synchronizes] {
      shared().words[threadIdx.x] = threadIdx.x;
      __syncthreads();
      volatile std::uint32_t seen = shared().words[kThreads - 1 - threadIdx.x];
      if (synchronizes) __syncthreads();
      shared().words[threadIdx.x] = seen;
    };
  };
  expect_fault(kernel(true), "");
  expect_fault(kernel(false), HasSubstr("and nothing orders an access of warp"));
}

TEST(ModelAccess, LanesOfAWarpAreInOrder) {
  expect_fault(
      [] {
        if (threadIdx.x >= 32) return;
        shared().words[threadIdx.x] = threadIdx.x;
        __syncwarp();
        volatile std::uint32_t seen = shared().words[31 - threadIdx.x];
        (void)seen;
      },
      "");
}

TEST(ModelAccess, LoadsOfACopy) {
  expect_fault(
      [] {
        begin();
        if (threadIdx.x == 0) copy();
        ptx::mbarrier_wait(full(), 0);
        volatile std::uint32_t seen = shared().words[threadIdx.x];
        (void)seen;
      },
      "");
}

TEST(ModelAccess, LoadsOfACopyThatNobodyHasWaitedFor) {
  expect_fault(
      [] {
        begin();
        if (threadIdx.x == 0) copy();
        __syncthreads();
        volatile std::uint32_t seen = shared().words[threadIdx.x];
        (void)seen;
        ptx::mbarrier_wait(full(), 0);
      },
      AnyOf(HasSubstr("loads from 0x"), HasSubstr("which a copy in flight of warp 0 writes"),
            HasSubstr("the warp has not waited for phase 0")));
}

TEST(ModelAccess, CopiesOverWhatIsStillRead) {
  // Warp 1 reads, warp 0 copies the next words over it.
  const auto kernel = [](bool gives_back) {
    return [gives_back] {
      begin();
      if (threadIdx.x >= 32) {
        volatile std::uint32_t seen = shared().words[threadIdx.x];
        (void)seen;
        if (gives_back) ptx::mbarrier_arrive(empty());
        __syncwarp();
        if (!gives_back) ptx::mbarrier_arrive(empty());
      }
      if (threadIdx.x == 0) {
        if (gives_back) ptx::mbarrier_wait(empty(), 0);
        copy();
      }
      if (threadIdx.x < 32) ptx::mbarrier_wait(full(), 0);
    };
  };
  expect_fault(kernel(true), "");
  expect_fault(kernel(false),
               AnyOf(HasSubstr("cp.async.bulk: writes to 0x400 and behind, of block 0, and nothing "
                               "orders an access of warp 1 before this"),
                     HasSubstr("which a copy in flight of warp 0 writes"),
                     HasSubstr("the warp has not waited for phase 0")));
}

// A commit orders products, not what its thread has stored, even if something else has.
TEST(ModelAccess, StoresBeforeACommit) {
  expect_fault(
      [] {
        begin();
        if (threadIdx.x == 0) {
          shared().words[3] = 1;
          ptx::mbarrier_arrive(empty());
          ptx::tcgen05_commit(full());
        } else if (threadIdx.x >= 32) {
          ptx::mbarrier_wait(full(), 0);
          const volatile std::uint32_t word = shared().words[3];
          (void)word;
        }
      },
      HasSubstr("loads from 0x40c, and nothing orders an access of warp 0 before this"));
}

TEST(ModelAccess, GlobalMemoryBesideABuffer) {
  const test::DeviceBuffer buffer(128, 0xFF);
  auto* words = reinterpret_cast<std::uint32_t*>(buffer.data());
  expect_fault([&] { words[threadIdx.x % 32] = 1; }, "");
  expect_fault([&] { words[threadIdx.x] = 1; }, HasSubstr("stores to 4 bytes of global memory, "));
  expect_fault(
      [&] {
        volatile std::uint32_t seen = *(words - 1);
        (void)seen;
      },
      HasSubstr("loads from 4 bytes of global memory, 4 bytes before a buffer of 128"));
  expect_fault(
      [&] {
        begin();
        if (threadIdx.x != 0) return;
        ptx::mbarrier_arrive_expect_tx(full(), 32);
        ptx::cp_async_bulk(ptx::shared_address(shared().words.data()), buffer.data() + 112, 32,
                           full());
        ptx::mbarrier_wait(full(), 0);
      },
      HasSubstr(
          "cp.async.bulk of warp 0: loads from 16 bytes of global memory, 16 bytes beyond the "
          "end of a buffer of 128"));
}

}  // namespace
}  // namespace openvc::model
