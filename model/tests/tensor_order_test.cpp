// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "tensor_columns.hpp"

// What must come between loads and stores of tensor memory.
namespace openvc::model {
namespace {

using testing::HasSubstr;

TEST(ModelTensorMemory, NoWaitInTheSameWarp) {
  EXPECT_THAT(fault_of_columns([](std::uint32_t address) {
                if (threadIdx.x >= 32) return;
                float values[8];
                store(address);
                ptx::tcgen05_ld_32x32b_x8(values, address);
              }),
              HasSubstr("reads column 0 of tensor memory, lanes 0 to 31, which "
                        "tcgen05.st.32x32b.x32 of warp 0 writes: no tcgen05.wait::st of the warp"));
  EXPECT_THAT(fault_of_columns([](std::uint32_t address) {
                if (threadIdx.x >= 32) return;
                float values[8];
                ptx::tcgen05_ld_32x32b_x8(values, address + 3);
                store(address);
              }),
              HasSubstr("writes to column 3 of tensor memory, lanes 0 to 31, which "
                        "tcgen05.ld.32x32b.x8 of warp 0 reads: no tcgen05.wait::ld of the warp"));
  EXPECT_THAT(fault_of_columns([](std::uint32_t address) {
                if (threadIdx.x < 32) store(address);
              }),
              HasSubstr("tcgen05.dealloc: column 0, lanes 0 to 31, which tcgen05.st.32x32b.x32 of "
                        "warp 0 has used: no tcgen05.wait::st"));
}

// Warp 4 reaches the lanes of warp 0.
TEST(ModelTensorMemory, GivenBackWhileAWarpLoads) {
  const auto kernel = [] {
    auto& shared = ptx::static_shared<ColumnShared>();
    if (threadIdx.x < 32) ptx::tcgen05_alloc<64>(ptx::shared_address(&shared.address));
    __syncthreads();
    if (threadIdx.x >= 128) {
      float values[8];
      ptx::tcgen05_ld_32x32b_x8(values, shared.address);
      ptx::tcgen05_wait_ld();
    } else if (threadIdx.x < 32) {
      for (int i = 0; i < 4; ++i) __syncwarp();  // in this order of turns, the load comes first
      ptx::tcgen05_dealloc<64>(shared.address);
    }
  };
  EXPECT_THAT(fault_of(160, kernel),
              HasSubstr("tcgen05.dealloc: column 0, lanes 0 to 31, which tcgen05.ld.32x32b.x8 of "
                        "warp 4 has used: nothing orders that before this"));
}

TEST(ModelTensorMemory, ThreadThatEndsWithoutAWait) {
  const auto end_after = [](bool loads) {
    return fault_of(32, [loads] {
      auto& shared = ptx::static_shared<ColumnShared>();
      ptx::tcgen05_alloc<64>(ptx::shared_address(&shared.address));
      float values[8];
      if (loads) {
        ptx::tcgen05_ld_32x32b_x8(values, shared.address);
      } else {
        store(shared.address);
      }
    });
  };
  EXPECT_THAT(end_after(true), HasSubstr("ends without tcgen05.wait::ld behind its loads"));
  EXPECT_THAT(end_after(false), HasSubstr("ends without tcgen05.wait::st behind its stores"));
}

/// Warp 0 stores what warp 4 loads: the same lanes. `before` and `after` are what lanes execute
/// round the barrier.
std::string fault_of_pair(const std::function<void()>& before, const std::function<void()>& after) {
  const auto kernel = [&] {
    auto& shared = ptx::static_shared<ColumnShared>();
    if (threadIdx.x < 32) ptx::tcgen05_alloc<64>(ptx::shared_address(&shared.address));
    __syncthreads();
    if (threadIdx.x < 32) {
      store(shared.address);
      before();
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
      after();
      float values[8];
      ptx::tcgen05_ld_32x32b_x8(values, shared.address);
      ptx::tcgen05_wait_ld();
    }
    if (threadIdx.x < 32) ptx::tcgen05_wait_st();
    __syncthreads();
    if (threadIdx.x < 32) ptx::tcgen05_dealloc<64>(shared.address);
  };
  return fault_of(160, kernel);
}

TEST(ModelTensorMemory, FencesRoundASynchronisation) {
  const auto stores_done = [] {
    ptx::tcgen05_wait_st();
    ptx::tcgen05_fence_before_thread_sync();
  };
  const auto fence_after = [] { ptx::tcgen05_fence_after_thread_sync(); };
  EXPECT_EQ(fault_of_pair(stores_done, fence_after), "");
  EXPECT_THAT(fault_of_pair([] { ptx::tcgen05_fence_before_thread_sync(); }, fence_after),
              HasSubstr("which tcgen05.st.32x32b.x32 of warp 0 writes: no tcgen05.wait::st of warp "
                        "0 has followed"));
  EXPECT_THAT(fault_of_pair([] { ptx::tcgen05_wait_st(); }, fence_after),
              HasSubstr("no tcgen05.fence::before_thread_sync of every lane of warp 0"));
  EXPECT_THAT(fault_of_pair(
                  [] {
                    ptx::tcgen05_wait_st();
                    if (lane() != 20) ptx::tcgen05_fence_before_thread_sync();
                  },
                  fence_after),
              HasSubstr("no tcgen05.fence::before_thread_sync of every lane of warp 0"));
  EXPECT_THAT(fault_of_pair(stores_done, [] {}),
              HasSubstr("no tcgen05.fence::after_thread_sync of every lane since the warp has "
                        "waited for that"));
  EXPECT_THAT(fault_of_pair(stores_done,
                            [] {
                              if (lane() == 0) ptx::tcgen05_fence_after_thread_sync();
                            }),
              HasSubstr("no tcgen05.fence::after_thread_sync of every lane"));
}

}  // namespace
}  // namespace openvc::model
