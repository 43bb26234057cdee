// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "cuda/ptx/load.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "run_kernel.hpp"

// Copies of threads, cp.async, which a barrier counts or the thread waits for, and ldmatrix.
namespace openvc::model {
namespace {

using namespace cuda;
using testing::AnyOf;
using testing::HasSubstr;

constexpr unsigned kThreads = 64;
constexpr int kWords = 4 * kWarpLanes;  // of four matrices: a row of 16 bytes a lane

struct Shared {
  alignas(16) std::array<std::uint32_t, kWords> words;
  std::uint64_t full;
  std::uint64_t empty;
};

Shared& shared() { return ptx::static_shared<Shared>(); }
std::uint32_t full() { return ptx::shared_address(&shared().full); }
std::uint32_t empty() { return ptx::shared_address(&shared().empty); }
std::uint32_t row(int lane) {
  return ptx::shared_address(&shared().words[4 * static_cast<std::size_t>(lane)]);
}

/// Word i is i.
alignas(16) constexpr std::array<std::uint32_t, kWords> kSource = [] {
  std::array<std::uint32_t, kWords> all{};
  for (std::uint32_t i = 0; i < kWords; ++i) all[i] = i;
  return all;
}();

void begin() {
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full(), kWarpLanes);
    ptx::mbarrier_init(empty(), 1);
  }
  __syncthreads();
}

/// Every lane copies a row.
void copy() { ptx::cp_async_16(row(lane()), &kSource[4 * static_cast<std::size_t>(lane())], true); }

void expect_fault(const std::function<void()>& kernel,
                  const testing::Matcher<const std::string&>& matcher) {
  for (const Schedule& schedule : kAllSchedules) {
    Grid grid;
    grid.threads = kThreads;
    EXPECT_THAT(fault_of(grid, schedule, kernel), matcher) << schedule.describe();
  }
}

/// Warp 0 copies, warp 1 reads; twice. What is left out is a fault.
struct Exchange {
  bool arrives = true;
  bool waits = true;
  bool gives_back = true;

  void operator()() const {
    begin();
    for (std::uint32_t round = 0; round < 2; ++round) {
      if (threadIdx.x < kWarpLanes) {
        if (gives_back) ptx::mbarrier_wait(empty(), round ^ 1u);
        copy();
        if (arrives) ptx::cp_async_mbarrier_arrive_noinc(full());
        if (!gives_back) ptx::mbarrier_wait(full(), round);
        continue;
      }
      if (waits) ptx::mbarrier_wait(full(), round);
      std::uint32_t d[4];
      ptx::ldmatrix_x4(d, row(lane()));
      for (int matrix = 0; matrix < 4; ++matrix) {
        EXPECT_EQ(d[matrix], static_cast<unsigned>(kWarpLanes * matrix + lane()));
      }
      __syncwarp();
      if (lane() == 0) ptx::mbarrier_arrive(empty());
    }
  }
};

TEST(ModelThreadCopy, BarrierCountsArrivalsBehindCopies) { expect_fault(Exchange{}, ""); }

TEST(ModelThreadCopy, ArrivalLeftOut) {
  expect_fault(Exchange{.arrives = false}, HasSubstr("phase 0 lacks 32 of 32 arrivals"));
}

TEST(ModelThreadCopy, OverwrittenBeforeItIsRead) {
  expect_fault(Exchange{.gives_back = false},
               AnyOf(HasSubstr("cp.async: writes to 0x400 and behind, of block 0, and nothing "
                               "orders an access of warp 1 before this"),
                     HasSubstr("which a copy in flight of warp 0 writes"),
                     HasSubstr("has written, and the warp has not waited for phase 1"),
                     HasSubstr("completes before all who wait for phase 0")));
}

/// The copying warp reads itself; `end` is what it does in between.
std::function<void()> reader(void (*end)()) {
  return [end] {
    begin();
    if (threadIdx.x >= kWarpLanes) return;
    copy();
    end();
    std::uint32_t d[4];
    ptx::ldmatrix_x4(d, row(lane()));
  };
}

TEST(ModelThreadCopy, ReadInFlight) {
  expect_fault(reader([] {}), HasSubstr("loads from 0x400, which a copy in flight of warp 0"));
}

TEST(ModelThreadCopy, ReadBeforeTheBarrier) {
  expect_fault(reader([] { ptx::cp_async_mbarrier_arrive_noinc(full()); }),
               AnyOf(HasSubstr("loads from 0x400, which a copy in flight of warp 0 writes"),
                     HasSubstr("loads from 0x400, where a copy of warp 0 has written, and the warp "
                               "has not waited for phase 0")));
}

TEST(ModelThreadCopy, GroupsThatTheThreadWaitsFor) {
  expect_fault(reader([] {
                 ptx::cp_async_commit_group();
                 ptx::cp_async_wait_group<0>();
                 __syncwarp();
               }),
               "");
  expect_fault(reader([] {
                 ptx::cp_async_commit_group();
                 ptx::cp_async_wait_group<1>();
                 __syncwarp();
               }),
               HasSubstr("loads from 0x400, which a copy in flight of warp 0"));
}

/// What a thread waited for itself is no news to others.
TEST(ModelThreadCopy, GroupsSayNothingToOtherWarps) {
  expect_fault(
      [] {
        begin();
        std::uint32_t d[4];
        if (threadIdx.x < kWarpLanes) {
          copy();
          ptx::cp_async_commit_group();
          ptx::cp_async_wait_group<0>();
        } else {
          ptx::ldmatrix_x4(d, row(lane()));
        }
      },
      AnyOf(HasSubstr("copy in flight of warp 0"), HasSubstr("nothing orders an access of warp")));
}

TEST(ModelThreadCopy, LdmatrixTakesRowsAtMultiplesOf16) {
  EXPECT_THAT(fault_of(kWarpLanes,
                       [] {
                         (void)shared();
                         std::uint32_t d[4];
                         ptx::ldmatrix_x4(d, row(0) + 4);
                       }),
              HasSubstr("ldmatrix: a row that starts at no multiple of 16"));
}

}  // namespace
}  // namespace openvc::model
