// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "tensor_columns.hpp"

// Allocation, loads and stores of tensor memory.
namespace openvc::model {
namespace {

using testing::HasSubstr;

TEST(ModelTensorMemory, LoadsWhatWasStored) {
  for (const Schedule& schedule : kAllSchedules) {
    SCOPED_TRACE(schedule.describe());
    std::vector<std::uint32_t> whole(kColumnThreads * 32);
    std::vector<std::uint32_t> few(kColumnThreads * 8);
    const auto body = [&](std::uint32_t address) {
      store(quarter() + address);
      ptx::tcgen05_wait_st();
      float x32[32];
      float x8[8];
      ptx::tcgen05_ld_32x32b_x32(x32, quarter() + address);
      ptx::tcgen05_ld_32x32b_x8(x8, quarter() + address + 5);
      ptx::tcgen05_wait_ld();
      std::memcpy(whole.data() + threadIdx.x * 32, x32, sizeof(x32));
      std::memcpy(few.data() + threadIdx.x * 8, x8, sizeof(x8));
    };
    ASSERT_EQ(fault_of_columns(body, true, schedule), "");
    for (std::uint32_t lane = 0; lane < kColumnThreads; ++lane) {
      for (std::uint32_t i = 0; i < 32; ++i) ASSERT_EQ(whole[lane * 32 + i], pattern(lane, i));
      for (std::uint32_t i = 0; i < 8; ++i) ASSERT_EQ(few[lane * 8 + i], pattern(lane, 5 + i));
    }
  }
}

TEST(ModelTensorMemory, PacksTheLowerHalvesOfTwoColumns) {
  std::vector<std::uint32_t> pairs(kColumnThreads * 64);
  const auto kernel = [&] {
    auto& shared = ptx::static_shared<ColumnShared>();
    if (threadIdx.x < 32) ptx::tcgen05_alloc<128>(ptx::shared_address(&shared.address));
    __syncthreads();
    for (std::uint32_t i = 0; i < 96; i += 32) store(quarter() + shared.address + i);
    ptx::tcgen05_wait_st();
    std::uint32_t mine[64];
    ptx::tcgen05_ld_32x32b_x64_pack_16b(mine, quarter() + shared.address);
    ptx::tcgen05_wait_ld();
    std::memcpy(pairs.data() + threadIdx.x * 64, mine, sizeof(mine));
    __syncthreads();
    if (threadIdx.x < 32) ptx::tcgen05_dealloc<128>(shared.address);
  };
  ASSERT_EQ(fault_of(kColumnThreads, kernel), "");
  for (std::uint32_t lane = 0; lane < kColumnThreads; ++lane) {
    for (std::uint32_t i = 0; i < 64; ++i) {
      const std::uint32_t expected =
          i < 48 ? (pattern(lane, 2 * i) & 0xFFFF) | pattern(lane, 2 * i + 1) << 16
                 : 0xFFFF'FFFF;  // what nobody has written
      ASSERT_EQ(pairs[lane * 64 + i], expected) << lane << " " << i;
    }
  }
}

TEST(ModelTensorMemory, RegistersBeforeTheWaitArePoison) {
  std::uint32_t early = 0;
  EXPECT_EQ(fault_of_columns([&](std::uint32_t address) {
              store(quarter() + address);
              ptx::tcgen05_wait_st();
              float values[8];
              ptx::tcgen05_ld_32x32b_x8(values, quarter() + address);
              std::memcpy(&early, values, sizeof(early));
              ptx::tcgen05_wait_ld();
            }),
            "");
  EXPECT_EQ(early, 0xFFFF'FFFFu);
  EXPECT_THAT(
      fault_of_columns([&](std::uint32_t address) {
        float values[8];
        ptx::tcgen05_ld_32x32b_x8(values, quarter() + address);
        values[3] = 0.0f;
        ptx::tcgen05_wait_ld();
      }),
      HasSubstr("tcgen05.ld.32x32b.x8: its registers were written before tcgen05.wait::ld"));
}

// ---- allocation ---------------------------------------------------------------------------------

TEST(ModelTensorMemory, WaitsForColumns) {
  std::uint32_t second = 1;
  const auto kernel = [&](bool gives_back) {
    return [&second, gives_back] {
      auto& shared = ptx::static_shared<ColumnShared>();
      if (threadIdx.x < 32) {
        ptx::tcgen05_alloc<512>(ptx::shared_address(&shared.address));
        if (gives_back) ptx::tcgen05_dealloc<512>(shared.address);
      } else {
        ptx::tcgen05_alloc<256>(ptx::shared_address(&shared.other));
        second = shared.other;
        ptx::tcgen05_dealloc<256>(shared.other);
      }
    };
  };
  for (const std::uint64_t seed : {0, 1, 2}) EXPECT_EQ(fault_of(64, kernel(true), seed), "");
  EXPECT_EQ(second, 0u);
  EXPECT_THAT(
      fault_of(64, kernel(false)),
      HasSubstr("warp 1 is in tcgen05.alloc with 32 of 32 lanes, which waits for columns of "
                "tensor memory that are free"));
}

TEST(ModelTensorMemory, Allocations) {
  const auto fault = [](const std::function<void(ColumnShared&)>& body) {
    return fault_of(32, [&] { body(ptx::static_shared<ColumnShared>()); });
  };
  EXPECT_THAT(
      fault([](ColumnShared& s) { ptx::tcgen05_alloc<16>(ptx::shared_address(&s.address)); }),
      HasSubstr("tcgen05.alloc: 16 columns; expected a power of two from 32 to 512"));
  EXPECT_THAT(
      fault([](ColumnShared& s) { ptx::tcgen05_alloc<96>(ptx::shared_address(&s.address)); }),
      HasSubstr("tcgen05.alloc: 96 columns"));
  EXPECT_THAT(fault([](ColumnShared& s) {
                ptx::tcgen05_relinquish_alloc_permit();
                ptx::tcgen05_alloc<32>(ptx::shared_address(&s.address));
              }),
              HasSubstr("tcgen05.alloc: after tcgen05.relinquish_alloc_permit"));
  EXPECT_THAT(fault([](ColumnShared& s) {
                ptx::tcgen05_alloc<64>(ptx::shared_address(&s.address));
                ptx::tcgen05_dealloc<32>(s.address);
              }),
              HasSubstr("tcgen05.dealloc: 32 columns at 0x0 are none that tcgen05.alloc gave"));
  EXPECT_THAT(
      fault([](ColumnShared& s) { ptx::tcgen05_alloc<64>(ptx::shared_address(&s.address) + 2); }),
      HasSubstr("no multiple of 4"));
  EXPECT_THAT(fault([](ColumnShared& s) {
                if (lane() < 7) ptx::tcgen05_alloc<64>(ptx::shared_address(&s.address));
              }),
              HasSubstr("deadlock; warp 0 is in tcgen05.alloc with 7 of 32 lanes"));
}

TEST(ModelTensorMemory, NotGivenBack) {
  EXPECT_THAT(fault_of_columns([](std::uint32_t) {}, false),
              HasSubstr("the block ends with columns 0 to 63 of tensor memory allocated; expected "
                        "tcgen05.dealloc before that"));
}

TEST(ModelTensorMemory, AddressThatNobodyWaitedFor) {
  const auto kernel = [] {
    auto& shared = ptx::static_shared<ColumnShared>();
    if (threadIdx.x < 32) {
      ptx::tcgen05_alloc<64>(ptx::shared_address(&shared.address));
    } else {
      store(quarter());
    }
  };
  EXPECT_THAT(fault_of(64, kernel),
              HasSubstr("columns 0 to 31 of tensor memory: nothing orders their allocation by warp "
                        "0 before this"));
}

// ---- loads and stores ---------------------------------------------------------------------------

TEST(ModelTensorMemory, Places) {
  EXPECT_THAT(fault_of_columns([](std::uint32_t address) { store(address + 40 + quarter()); }),
              HasSubstr("tcgen05.st.32x32b.x32: columns 40 to 71 of tensor memory are not "
                        "allocated"));
  EXPECT_THAT(fault_of_columns([](std::uint32_t address) {
                if (threadIdx.x / 32 == 2) store(address + ptx::kTensorMemoryLane * 32);
              }),
              HasSubstr("starts at lane 32; warp 2 of the block reaches the lanes 64 to 95"));
  EXPECT_THAT(fault_of_columns([](std::uint32_t address) {
                store(address + quarter() + (lane() == 9 ? 1 : 0));
              }),
              HasSubstr("tcgen05.st.32x32b.x32: lanes of the warp have unlike addresses"));
}

TEST(ModelTensorMemory, DivergentAccesses) {
  EXPECT_THAT(fault_of_columns([](std::uint32_t address) {
                float values[8];
                if (lane() < 16) {
                  store(address + quarter());
                } else {
                  ptx::tcgen05_ld_32x32b_x8(values, address + quarter());
                }
              }),
              HasSubstr("tcgen05.ld.32x32b.x8 while other lanes of the warp are in tcgen05.st"));
  EXPECT_THAT(fault_of_columns([](std::uint32_t address) {
                if (threadIdx.x != 5) store(address + quarter());
                ptx::tcgen05_wait_st();
              }),
              HasSubstr("while other lanes of the warp are in tcgen05."));
}

}  // namespace
}  // namespace openvc::model
