// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "block_scene.hpp"

// What must come before and behind a product of a block (tcgen05).
namespace openvc::model {
namespace {

using testing::HasSubstr;

TEST(ModelBlockOperand, SharedMemoryThatChanges) {
  EXPECT_THAT(fault_of_product([](const BlockScene& s) {
                multiply_once(s);
                if (s.issues) s.shared.b[17] ^= 1;
                s.commit_and_wait();
              }),
              HasSubstr("tcgen05.mma.ss of warp 0: B has changed before the product was done"));
  EXPECT_THAT(fault_of_product([](const BlockScene& s) {
                multiply_once(s);
                if (s.issues) s.shared.a[16 * 128] ^= 1;
                s.commit_and_wait();
              }),
              HasSubstr("tcgen05.mma.ss of warp 0: A has changed before the product was done"));
  EXPECT_THAT(fault_of_product([](const BlockScene& s) {
                if (s.issues) s.shared.b[0] = 0x38;
                multiply_once(s);
              }),
              HasSubstr("row 0 of B at 0x4400: threads have stored it, and no fence.proxy.async"));
}

/// A copy over B, behind a commit that comes before or behind the product.
std::string fault_of_copy(bool commits_first) {
  const Operand other(32, kDepth, 9);
  const CUtensorMap map = other.map();
  return fault_of_product([&](const BlockScene& s) {
    if (s.issues) {
      if (commits_first) ptx::tcgen05_commit(s.done);
      multiply_once(s);
      if (!commits_first) ptx::tcgen05_commit(s.done);
      ptx::mbarrier_wait(s.done, 0);
      const std::uint32_t full = ptx::shared_address(&s.shared.full);
      ptx::mbarrier_arrive_expect_tx(full, 32 * kDepth);
      ptx::cp_async_bulk_tensor_3d(ptx::shared_address(s.shared.b.data()), &map, full, 0, 0, 0);
      ptx::mbarrier_wait(full, 1);
    }
  });
}

TEST(ModelBlockOperand, CommitCoversWhatCameBefore) {
  EXPECT_EQ(fault_of_copy(false), "");
  EXPECT_THAT(
      fault_of_copy(true),
      HasSubstr("cp.async.bulk.tensor.3d: writes to 0x4400 of block 0, and nothing orders a "
                "product of warp 0 that reads there before this"));
}

TEST(ModelBlockOperand, TensorMemoryOfAProductThatRuns) {
  EXPECT_THAT(fault_of_product([](const BlockScene& s) {
                multiply_once(s);
                __syncwarp();
                float values[8];
                if (threadIdx.x < 32) ptx::tcgen05_ld_32x32b_x8(values, s.mine + 24);
              }),
              HasSubstr("reads column 24 of tensor memory, lanes 0 to 31, which tcgen05.mma.ss of "
                        "warp 0 writes: the warp has waited for no tcgen05.commit"));
  EXPECT_THAT(fault_of_product([](const BlockScene& s) {
                multiply_once(s);
                __syncthreads();
                std::uint32_t values[32] = {};
                if (threadIdx.x >= 96) ptx::tcgen05_st_32x32b_x32(s.mine, values);
              }),
              HasSubstr("tcgen05.st.32x32b.x32: writes to column 0 of tensor memory, lanes 96 to "
                        "127, which tcgen05.mma.ss of warp 0 writes: the warp has waited for no"));
  EXPECT_THAT(fault_of_product([](const BlockScene& s) { multiply_once(s); }),
              HasSubstr("tcgen05.dealloc: column 0, lanes 0 to 31, which tcgen05.mma.ss of warp 0 "
                        "has used: the warp has waited for no tcgen05.commit that covers it"));
}

TEST(ModelBlockOperand, ThreadsThatIssue) {
  EXPECT_THAT(fault_of_product([](const BlockScene& s) {
                multiply_once(s);
                __syncwarp();
                if (threadIdx.x == 1) ptx::tcgen05_commit(s.done);
              }),
              HasSubstr("tcgen05.commit: lane 0 of the warp issues its products, and a commit "
                        "covers those of its own thread alone"));
  // Another warp, whose products nothing orders behind the first.
  EXPECT_THAT(fault_of_product([](const BlockScene& s) {
                multiply_once(s);
                __syncthreads();
                if (threadIdx.x == 64) {
                  ptx::tcgen05_fence_after_thread_sync();
                  ptx::tcgen05_mma_f8f6f4_ss(s.d, s.a, s.b, kProduct, true);
                }
              }),
              HasSubstr("writes to column 0 of tensor memory, lanes 0 to 31, which tcgen05.mma.ss "
                        "of warp 0 writes: the warp has waited for no tcgen05.commit"));
}

TEST(ModelBlockOperand, CommitsAtTheEndOfABlock) {
  const Operand a(kSceneRows, kDepth, 1);
  const Operand b(32, kDepth, 2);
  const auto fault = [&](Engines engines) {
    return run_block_scene<ptx::Swizzle::bytes_128>(a, b, {0, Turns::in_order, engines},
                                                    [](const BlockScene& s) {
                                                      multiply_once(s);
                                                      s.commit_and_wait();
                                                      __syncthreads();
                                                      if (s.issues) ptx::tcgen05_commit(s.done);
                                                    });
  };
  EXPECT_THAT(fault(Engines::lazy),
              HasSubstr("the block ends while a tcgen05.commit of warp 0 is in flight"));
  EXPECT_THAT(fault(Engines::eager),
              HasSubstr("the block ends, and nothing orders the arrival of a "
                        "tcgen05.commit of warp 0 before that"));
  EXPECT_THAT(fault_of_product([](const BlockScene& s) {
                if (s.issues) ptx::tcgen05_commit_multicast(s.done, 2);
              }),
              HasSubstr("tcgen05.commit.multicast: a mask of blocks 0x2 in a cluster of 1"));
}

}  // namespace
}  // namespace openvc::model
