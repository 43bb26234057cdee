// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/synchronize.cuh"
#include "cuda/ptx/tma.cuh"
#include "run_kernel.hpp"

// mbarriers, clusters and the register pool: what they order, and the faults that they show.
namespace openvc::model {
namespace {

using namespace cuda;
using testing::AnyOf;
using testing::HasSubstr;

constexpr Schedule kInOrder{};
const Grid kPair{.blocks = 2, .threads = 64, .cluster_size = 2};

struct Barriers {
  std::uint64_t full;
  std::uint64_t empty;
  unsigned value;
  alignas(16) std::array<std::uint32_t, 64> copied;
};

Barriers& barriers() { return ptx::static_shared<Barriers>(); }
std::uint32_t full() { return ptx::shared_address(&barriers().full); }
std::uint32_t empty() { return ptx::shared_address(&barriers().empty); }

/// Initialises both barriers of a block.
void begin(unsigned full_arrivals, unsigned empty_arrivals) {
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full(), full_arrivals);
    ptx::mbarrier_init(empty(), empty_arrivals);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
}

TEST(ModelBarrier, PhasesOrderAProducerAndItsConsumers) {
  constexpr unsigned kItems = 5;
  for (const Schedule& schedule : kAllSchedules) {
    SCOPED_TRACE(schedule.describe());
    std::array<unsigned, 64> sums{};
    const auto kernel = [&] {
      begin(1, 63);
      std::uint32_t parity = 0;
      for (unsigned item = 1; item <= kItems; ++item, parity ^= 1) {
        if (threadIdx.x == 0) {
          ptx::mbarrier_wait(empty(), parity ^ 1);  // the first wait passes
          barriers().value = item;
          ptx::mbarrier_arrive(full());
        } else {
          ptx::mbarrier_wait(full(), parity);
          sums[threadIdx.x] = 10 * sums[threadIdx.x] + barriers().value;
          ptx::mbarrier_arrive(empty());
        }
      }
    };
    EXPECT_EQ(fault_of({.threads = 64}, schedule, kernel), "");
    for (unsigned i = 1; i < 64; ++i) EXPECT_EQ(sums[i], 12345u);
  }
}

TEST(ModelBarrier, TryWaitTellsWhetherAPhaseIsOver) {
  for (const Schedule& schedule : kAllSchedules) {
    SCOPED_TRACE(schedule.describe());
    unsigned passed = 0;
    const auto kernel = [&] {
      begin(1, 1);
      if (threadIdx.x == 0) {
        EXPECT_TRUE(ptx::mbarrier_try_wait_parity(full(), 1));
        ptx::mbarrier_arrive(full());
        EXPECT_TRUE(ptx::mbarrier_try_wait_parity(full(), 0));
      } else {
        while (!ptx::mbarrier_try_wait_parity(full(), 0)) {
        }
        ++passed;
      }
    };
    EXPECT_EQ(fault_of({.threads = 64}, schedule, kernel), "");
    EXPECT_EQ(passed, 63u);
  }
}

TEST(ModelBarrier, BytesOfACopyCompleteAPhase) {
  alignas(16) std::array<std::uint32_t, 64> source{};
  for (unsigned i = 0; i < 64; ++i) source[i] = 3 * i;
  for (const Schedule& schedule : kAllSchedules) {
    SCOPED_TRACE(schedule.describe());
    std::array<std::uint32_t, 64> seen{};
    const auto kernel = [&] {
      begin(1, 1);
      if (threadIdx.x == 0) {
        // In two parts, either of which may come first.
        auto& copied = barriers().copied;
        ptx::mbarrier_arrive_expect_tx(full(), sizeof(copied));
        ptx::cp_async_bulk(ptx::shared_address(copied.data()), source.data(), 64, full());
        ptx::cp_async_bulk(ptx::shared_address(copied.data() + 16), source.data() + 16, 192,
                           full());
      }
      ptx::mbarrier_wait(full(), 0);
      seen[threadIdx.x] = barriers().copied[threadIdx.x];
    };
    EXPECT_EQ(fault_of({.threads = 64}, schedule, kernel), "");
    EXPECT_EQ(seen, source);
  }
}

TEST(ModelBarrier, ArrivalsComeFromTheWholeCluster) {
  for (const Schedule& schedule : kAllSchedules) {
    SCOPED_TRACE(schedule.describe());
    std::array<unsigned, 128> global{};
    unsigned sum = 0;
    const auto kernel = [&] {
      begin(128, 1);
      ptx::barrier_cluster_arrive();
      ptx::barrier_cluster_wait();
      global[64 * ptx::cluster_ctarank() + threadIdx.x] = 1;
      ptx::mbarrier_arrive_cluster(ptx::mapa(full(), 1));
      if (ptx::cluster_ctarank() == 1 && threadIdx.x == 7) {
        ptx::mbarrier_wait(full(), 0);
        for (const unsigned x : global) sum += x;
      }
      ptx::barrier_cluster_arrive();
      ptx::barrier_cluster_wait();
    };
    EXPECT_EQ(fault_of(kPair, schedule, kernel), "");
    EXPECT_EQ(sum, 128u);
    sum = 0;
  }
}

TEST(ModelBarrier, ClustersStartTogetherAndInPairs) {
  std::array<unsigned, 4> ranks{};
  Grid grid = kPair;
  grid.blocks = 4;
  EXPECT_EQ(fault_of(grid, kInOrder, [&] { ranks[blockIdx.x] = 1 + ptx::cluster_ctarank(); }), "");
  EXPECT_EQ(ranks, (std::array<unsigned, 4>{1, 2, 1, 2}));
}

TEST(ModelBarrier, RegistersMoveBetweenWarpgroups) {
  for (const Schedule& schedule : kAllSchedules) {
    const auto kernel = [] {
      if (threadIdx.x < 128) {
        ptx::setmaxnreg_inc<240>();
      } else {
        ptx::setmaxnreg_dec<24>();
      }
    };
    EXPECT_EQ(fault_of({.threads = 384}, schedule, kernel), "");
  }
}

// ---- faults -------------------------------------------------------------------------------------

TEST(ModelBarrier, DeadlockNamesTheBarrierAndItsPhase) {
  Grid grid{.threads = 64};
  grid.names.role = [](unsigned warp) { return warp == 0 ? "loader" : "consumer"; };
  grid.names.barrier = [](std::uint32_t offset) {
    return std::string(offset == 0 ? "full" : "empty");
  };
  const auto kernel = [] {
    begin(1, 32);
    if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(full(), 256);
    if (threadIdx.x >= 32) ptx::mbarrier_wait(full(), 0);
    if (threadIdx.x < 5) ptx::mbarrier_wait(empty(), 0);
  };
  const std::string fault = fault_of(grid, kInOrder, kernel);
  EXPECT_THAT(fault, HasSubstr("test kernel, block 0: deadlock"));
  EXPECT_THAT(fault, HasSubstr("warp 0 (loader) waits with 5 lanes for parity 0 of empty (the "
                               "barrier at 0x408): phase 0 lacks 32 of 32 arrivals"));
  EXPECT_THAT(fault, HasSubstr("warp 1 (consumer) waits with 32 lanes for parity 0 of full (the "
                               "barrier at 0x400): phase 0 lacks 0 of 1 arrivals and 256 bytes"));
}

TEST(ModelBarrier, OneArrivalTooMany) {
  const auto kernel = [] {
    begin(1, 1);
    if (threadIdx.x == 0) ptx::mbarrier_arrive_expect_tx(full(), 256);
    __syncthreads();
    if (threadIdx.x == 33) ptx::mbarrier_arrive(full());
  };
  EXPECT_THAT(fault_of({.threads = 64}, kInOrder, kernel),
              HasSubstr("thread 33: mbarrier.arrive: one arrival too many at the barrier at 0x400: "
                        "phase 0 lacks 0 of 1 arrivals and 256 bytes"));
}

/// A copy of `bytes` where `expected` are.
std::string fault_of_bytes(std::uint32_t expected, std::uint32_t bytes) {
  alignas(16) static const std::array<std::uint32_t, 64> source{};
  const auto kernel = [&] {
    begin(1, 1);
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect_tx(full(), expected);
      ptx::cp_async_bulk(ptx::shared_address(barriers().copied.data()), source.data(), bytes,
                         full());
    }
    ptx::mbarrier_wait(full(), 0);
  };
  return fault_of({.threads = 32}, {1, Turns::random, Engines::lazy}, kernel);
}

TEST(ModelBarrier, MoreBytesThanExpected) {
  EXPECT_EQ(fault_of_bytes(128, 128), "");
  EXPECT_THAT(fault_of_bytes(128, 144),
              HasSubstr("test kernel: cp.async.bulk of warp 0: the barrier at 0x400, phase 0: 16 "
                        "bytes more than were expected"));
}

TEST(ModelBarrier, FewerBytesThanExpected) {
  EXPECT_THAT(
      fault_of_bytes(128, 112),
      HasSubstr("deadlock; warp 0 waits with 32 lanes for parity 0 of the barrier at 0x400: "
                "phase 0 lacks 0 of 1 arrivals and 16 bytes"));
}

TEST(ModelBarrier, MoreBytesThanABarrierCounts) {
  EXPECT_THAT(fault_of_bytes(1u << 20, 16),
              HasSubstr("mbarrier.arrive.expect_tx: the barrier at 0x400 counts 1048576 bytes; at "
                        "most 1048575"));
}

TEST(ModelBarrier, ObjectsThatAreNoBarriers) {
  EXPECT_THAT(fault_of(1, [] { ptx::mbarrier_arrive(full()); }),
              HasSubstr("mbarrier.arrive: the barrier at 0x400 has not been initialised"));
  EXPECT_THAT(fault_of(1,
                       [] {
                         begin(1, 1);
                         barriers().full = 1;
                         ptx::mbarrier_arrive(full());
                       }),
              HasSubstr("the barrier at 0x400 has been overwritten"));
  EXPECT_THAT(fault_of(1, [] { ptx::mbarrier_init(full() + 4, 1); }),
              HasSubstr("no multiple of 8"));
  EXPECT_THAT(fault_of(1, [] { ptx::mbarrier_init(full(), 0); }), HasSubstr("0 arrivals"));
  EXPECT_THAT(fault_of(1, [] { ptx::mbarrier_init(0x10, 1); }),
              HasSubstr("no shared memory at address 0x10"));
}

TEST(ModelBarrier, AddressesOfTheClusterNeedItsInstructions) {
  const auto kernel = [] {
    begin(1, 1);
    ptx::mbarrier_arrive(ptx::mapa(full(), 0));
  };
  EXPECT_THAT(fault_of(1, kernel), HasSubstr("is of the cluster's window"));
  EXPECT_THAT(fault_of(1, [] { (void)ptx::mapa(full(), 1); }),
              HasSubstr("mapa: rank 1 in a cluster of 1"));
}

TEST(ModelBarrier, BlockThatExitsWhileItsPeerStillArrives) {
  const auto kernel = [] {
    begin(64, 1);
    ptx::barrier_cluster_arrive();
    ptx::barrier_cluster_wait();
    if (ptx::cluster_ctarank() == 1) ptx::mbarrier_arrive_cluster(ptx::mapa(full(), 0));
  };
  for (const Schedule& schedule : kAllSchedules) {
    EXPECT_THAT(fault_of(kPair, schedule, kernel),
                AnyOf(HasSubstr("mbarrier.arrive.cluster: the barrier at 0x400 of block 0 is of a "
                                "block that has ended"),
                      HasSubstr("the block ends, and nothing orders an arrival of another block at "
                                "the barrier at 0x400 of block 0 before that")));
  }
}

TEST(ModelBarrier, ClusterBarriersPairUp) {
  EXPECT_THAT(fault_of(kPair, kInOrder, [] { ptx::barrier_cluster_wait(); }),
              HasSubstr("barrier.cluster.wait: without barrier.cluster.arrive"));
  EXPECT_THAT(fault_of(kPair, kInOrder,
                       [] {
                         ptx::barrier_cluster_arrive();
                         ptx::barrier_cluster_arrive();
                       }),
              HasSubstr("a second time without barrier.cluster.wait"));
  const auto kernel = [] {
    ptx::barrier_cluster_arrive();
    if (ptx::cluster_ctarank() == 1) {
      __syncthreads();
      if (threadIdx.x >= 32) __syncthreads();
      if (threadIdx.x < 32) ptx::elect_sync();
    }
    ptx::barrier_cluster_wait();
    __syncthreads();
    if (threadIdx.x == 0) ptx::mbarrier_wait(full(), 0);
  };
  EXPECT_NE(fault_of(kPair, kInOrder, kernel), "");
}

TEST(ModelBarrier, DivergentAlignedInstruction) {
  const auto kernel = [] {
    if (threadIdx.x < 16) {
      ptx::barrier_cluster_arrive();
    } else {
      (void)ptx::elect_sync();
    }
  };
  EXPECT_THAT(fault_of(32, kernel), HasSubstr("thread 16: elect.sync while other lanes of the warp "
                                              "are in barrier.cluster.arrive"));
}

TEST(ModelBarrier, RegistersThatNobodyGivesBack) {
  EXPECT_THAT(fault_of(384,
                       [] {
                         if (threadIdx.x < 128) ptx::setmaxnreg_inc<240>();
                       }),
              HasSubstr("warp 0 waits with 32 lanes for registers, of which"));
  EXPECT_THAT(fault_of(384, [] { ptx::setmaxnreg_dec<240>(); }),
              HasSubstr("setmaxnreg.dec: 240 registers, the thread has 168"));
  EXPECT_THAT(fault_of(32, [] { ptx::setmaxnreg_dec<20>(); }), HasSubstr("multiple of 8"));
}

}  // namespace
}  // namespace openvc::model
