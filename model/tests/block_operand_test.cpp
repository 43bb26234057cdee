// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cuda/ptx/tcgen05.cuh"
#include "cuda/ptx/tensor_memory.cuh"
#include "machine/rounding.hpp"
#include "product_operands.hpp"
#include "run_kernel.hpp"

// One product of a block (tcgen05): its values for shapes and swizzles, and what is wrong with
// operands and with the order round it.
namespace openvc::model {
namespace {

using ptx::AccumulatorType;
using testing::HasSubstr;

constexpr int kRows = 128;
constexpr int kMostColumns = 256;
constexpr unsigned kThreads = 128;
constexpr std::uint32_t kSpare = 256;  // columns beside those of D

struct alignas(1024) BlockShared {
  std::array<std::uint8_t, std::size_t{kRows} * kDepth> a;
  alignas(1024) std::array<std::uint8_t, std::size_t{kMostColumns} * kDepth> b;
  std::uint64_t full;
  std::uint64_t done;
  std::uint32_t columns;
};

/// What a kernel of the test works with.
struct Scene {
  BlockShared& shared;
  std::uint32_t d;     // address in tensor memory
  std::uint32_t mine;  // the same, of the lanes of the warp
  std::uint64_t a;
  std::uint64_t b;
  bool issues;  // the thread that issues
  std::uint32_t done;

  void commit_and_wait() const {
    if (issues) ptx::tcgen05_commit(done);
    ptx::mbarrier_wait(done, 0);
    ptx::tcgen05_fence_after_thread_sync();
  }
};

constexpr std::uint32_t kProduct =
    ptx::instruction_descriptor(AccumulatorType::binary32, kRows, 32);

/// Codes of all numbers below 2^4, without an order.
Operand odd_operand(int rows, int width, unsigned seed) {
  Operand operand(rows, width, seed);
  for (std::uint8_t& code : operand.storage) {
    seed = seed * 1664525u + 1013904223u;
    code = static_cast<std::uint8_t>((seed >> 31 << 7) | (seed >> 16) % 0x58);
  }
  return operand;
}

template <ptx::Swizzle kSwizzle>
std::string run(const Operand& a, const Operand& b, const Schedule& schedule,
                const std::function<void(Scene)>& body) {
  const CUtensorMap a_map = a.map();
  const CUtensorMap b_map = b.map();
  const auto kernel = [&] {
    auto& s = ptx::static_shared<BlockShared>();
    const std::uint32_t full = ptx::shared_address(&s.full);
    const std::uint32_t done = ptx::shared_address(&s.done);
    if (threadIdx.x < 32) ptx::tcgen05_alloc<512>(ptx::shared_address(&s.columns));
    if (threadIdx.x == 0) {
      ptx::mbarrier_init(full, 1);
      ptx::mbarrier_init(done, 1);
      ptx::fence_mbarrier_init();
      ptx::mbarrier_arrive_expect_tx(full,
                                     a_map.box[0] * a_map.box[1] + b_map.box[0] * b_map.box[1]);
      ptx::cp_async_bulk_tensor_3d(ptx::shared_address(s.a.data()), &a_map, full, 0, 0, 0);
      ptx::cp_async_bulk_tensor_3d(ptx::shared_address(s.b.data()), &b_map, full, 0, 0, 0);
    }
    __syncthreads();
    ptx::mbarrier_wait(full, 0);
    const auto tile = [](const void* data) {
      return ptx::tcgen05_matrix_descriptor<kSwizzle>(ptx::shared_address(data));
    };
    body({.shared = s,
          .d = s.columns,
          .mine = s.columns + threadIdx.x / 32 * 32 * ptx::kTensorMemoryLane,
          .a = tile(s.a.data()),
          .b = tile(s.b.data()),
          .issues = threadIdx.x == 0,
          .done = done});
    __syncthreads();
    if (threadIdx.x < 32) ptx::tcgen05_dealloc<512>(s.columns);
  };
  return fault_of({.threads = kThreads}, schedule, kernel);
}

std::string fault_of_product(const std::function<void(Scene)>& body) {
  return run<ptx::Swizzle::bytes_128>(Operand(kRows, kDepth, 1), Operand(32, kDepth, 2),
                                      {0, Turns::in_order, Engines::lazy}, body);
}

void multiply_once(const Scene& s) {
  if (s.issues) ptx::tcgen05_mma_f8f6f4_ss(s.d, s.a, s.b, kProduct, false);
}

// ---- values -------------------------------------------------------------------------------------

template <ptx::Swizzle kSwizzle>
void expect_values(AccumulatorType type, int columns, int width) {
  const Operand a = odd_operand(kRows, width, 21);
  const Operand b = odd_operand(columns, width, 22);
  std::vector<std::uint32_t> d(std::size_t{kRows} * columns);
  for (const Schedule& schedule : {kAllSchedules[0], kAllSchedules[3]}) {
    const auto body = [&](const Scene& s) {
      for (int k = 0; s.issues && k < width; k += 32) {
        ptx::tcgen05_mma_f8f6f4_ss(s.d, ptx::advance_descriptor(s.a, k),
                                   ptx::advance_descriptor(s.b, k),
                                   ptx::instruction_descriptor(type, kRows, columns), k != 0);
      }
      s.commit_and_wait();
      for (int j = 0; j < columns; j += 8) {
        float values[8];
        ptx::tcgen05_ld_32x32b_x8(values, s.mine + static_cast<std::uint32_t>(j));
        ptx::tcgen05_wait_ld();
        std::memcpy(&d[threadIdx.x * static_cast<std::size_t>(columns) + j], values,
                    sizeof(values));
      }
    };
    ASSERT_EQ((run<kSwizzle>(a, b, schedule, body)), "");
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < columns; ++j) {
        std::uint32_t expected = 0;  // rounded after every step
        for (int k = 0; k < width; k += 32) {
          const double exact = a.dot(i, b, j, k, 32);
          if (type == AccumulatorType::binary32) {
            expected = numerics::float_bits(
                static_cast<float>(double{numerics::float_from_bits(expected)} + exact));
          } else {
            const auto old = static_cast<std::uint16_t>(expected);
            expected = 0xFFFF'0000u | double_to_half(double{numerics::half_to_float(old)} + exact);
          }
        }
        ASSERT_EQ(d[static_cast<std::size_t>(i * columns + j)], expected) << i << " " << j;
      }
    }
  }
}

TEST(ModelBlockOperand, Values) {
  expect_values<ptx::Swizzle::bytes_128>(AccumulatorType::binary16, 48, 128);
  expect_values<ptx::Swizzle::bytes_32>(AccumulatorType::binary16, 16, 32);
  expect_values<ptx::Swizzle::bytes_128>(AccumulatorType::binary32, 144, 128);
  expect_values<ptx::Swizzle::bytes_32>(AccumulatorType::binary32, 256, 32);
}

// ---- operands -----------------------------------------------------------------------------------

TEST(ModelBlockOperand, InstructionDescriptors) {
  const auto fault = [](std::uint32_t descriptor) {
    return fault_of_product([descriptor](const Scene& s) {
      if (s.issues) ptx::tcgen05_mma_f8f6f4_ss(s.d, s.a, s.b, descriptor, false);
      s.commit_and_wait();
    });
  };
  const auto of_shape = [](int m, int n) {
    return ptx::instruction_descriptor(AccumulatorType::binary32, m, n);
  };
  EXPECT_EQ(fault(kProduct), "");
  EXPECT_THAT(fault(of_shape(64, 32)),
              HasSubstr("tcgen05.mma.ss: instruction descriptor 0x4080010: M (bits 24 to 28, times "
                        "16) is 64; the model knows 128"));
  EXPECT_THAT(fault(of_shape(128, 136)), HasSubstr("N is 136; expected a multiple of 16"));
  EXPECT_THAT(fault(of_shape(128, 272)), HasSubstr("N is 272; expected a multiple of 16 from 16"));
  EXPECT_THAT(fault(of_shape(128, 0)), HasSubstr("N is 0"));
  EXPECT_THAT(fault(kProduct | 1u << 5), HasSubstr("the type of D is 3"));
  EXPECT_THAT(fault(kProduct | 1u << 7), HasSubstr("the type of A (bits 7 to 9) is 1"));
  EXPECT_THAT(fault(kProduct | 5u << 10), HasSubstr("the type of B (bits 10 to 12) is 5"));
  EXPECT_THAT(fault(kProduct | 1u << 14), HasSubstr("negation of A and B"));
  EXPECT_THAT(fault(kProduct | 1u << 16), HasSubstr("transposition of A and B"));
  EXPECT_THAT(fault(kProduct | 1u << 2), HasSubstr("the sparsity"));
  for (const int bit : {3, 6, 23, 29, 31}) {
    EXPECT_THAT(fault(kProduct | 1u << bit), HasSubstr("the model knows 0")) << bit;
  }
}

TEST(ModelBlockOperand, MatrixDescriptors) {
  const auto fault = [](const std::function<std::uint64_t(std::uint64_t)>& change) {
    return fault_of_product([&](const Scene& s) {
      if (s.issues) ptx::tcgen05_mma_f8f6f4_ss(s.d, change(s.a), s.b, kProduct, false);
      s.commit_and_wait();
    });
  };
  using Word = std::uint64_t;
  EXPECT_THAT(fault([](Word a) { return a & ~(Word{7} << 46); }),
              HasSubstr("descriptor of A 0x4000004000010040: the constant in the bits 46 to 48"));
  EXPECT_THAT(fault([](Word a) { return (a & ~(Word{7} << 61)) | Word{1} << 61; }),
              HasSubstr("swizzle mode 1; the model knows 2, 4 and 6"));
  EXPECT_THAT(fault([](Word a) { return (a & ~(Word{7} << 61)) | Word{6} << 61; }),
              HasSubstr("a swizzle of 32 bytes, the tile was copied with one of 128"));
  EXPECT_THAT(fault([](Word a) { return a | Word{1} << 52; }),
              HasSubstr("bits that must be zero are not"));
  EXPECT_THAT(fault([](Word a) { return a | Word{1} << 49; }), HasSubstr("a base offset"));
  EXPECT_THAT(
      fault([](Word a) { return a + (Word{64 >> 4} << 32); }),
      HasSubstr("row 8 of A at 0x840: expected row 8, chunk 0 of the tile, found row 8, chunk "
                "4; the stride byte offset of the descriptor is 1088"));
}

TEST(ModelBlockOperand, PlacesInTensorMemory) {
  const auto fault = [](std::uint32_t d, std::uint32_t a, bool accumulate) {
    return fault_of_product([=](const Scene& s) {
      if (s.issues) ptx::tcgen05_mma_f8f6f4_ts(s.d + d, s.d + a, s.b, kProduct, accumulate);
      s.commit_and_wait();
    });
  };
  EXPECT_THAT(fault(ptx::kTensorMemoryLane * 32, kSpare, false),
              HasSubstr("tcgen05.mma.ts: D starts at lane 32 of tensor memory; expected 0"));
  EXPECT_THAT(fault(0, kSpare + ptx::kTensorMemoryLane * 64, false),
              HasSubstr("tcgen05.mma.ts: A starts at lane 64"));
  EXPECT_THAT(fault(0, 31, false), HasSubstr("A and D share columns of tensor memory"));
  EXPECT_THAT(fault(0, kSpare, false),
              HasSubstr("reads column 256 of tensor memory, lanes 0 to 31, which nobody has"));
  EXPECT_THAT(fault(496, kSpare, false), HasSubstr("nobody has written"));
  EXPECT_THAT(fault_of_product([](const Scene& s) {
                if (s.issues) ptx::tcgen05_mma_f8f6f4_ss(s.d + 496, s.a, s.b, kProduct, false);
              }),
              HasSubstr("tcgen05.mma.ss: columns 496 to 527 of tensor memory are not allocated"));
  EXPECT_THAT(fault_of_product([](const Scene& s) {
                if (s.issues) ptx::tcgen05_mma_f8f6f4_ss(s.d, s.a, s.b, kProduct, true);
              }),
              HasSubstr("writes to column 0 of tensor memory, lanes 0 to 31, which nobody has "
                        "written"));
}

// ---- order --------------------------------------------------------------------------------------

TEST(ModelBlockOperand, SharedMemoryThatChanges) {
  EXPECT_THAT(fault_of_product([](const Scene& s) {
                multiply_once(s);
                if (s.issues) s.shared.b[17] ^= 1;
                s.commit_and_wait();
              }),
              HasSubstr("tcgen05.mma.ss of warp 0: B has changed before the product was done"));
  EXPECT_THAT(fault_of_product([](const Scene& s) {
                multiply_once(s);
                if (s.issues) s.shared.a[16 * 128] ^= 1;
                s.commit_and_wait();
              }),
              HasSubstr("tcgen05.mma.ss of warp 0: A has changed before the product was done"));
  EXPECT_THAT(fault_of_product([](const Scene& s) {
                if (s.issues) s.shared.b[0] = 0x38;
                multiply_once(s);
              }),
              HasSubstr("row 0 of B at 0x4400: threads have stored it, and no fence.proxy.async"));
}

/// A copy over B, behind a commit that comes before or behind the product.
std::string fault_of_copy(bool commits_first) {
  const Operand other(32, kDepth, 9);
  const CUtensorMap map = other.map();
  return fault_of_product([&](const Scene& s) {
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
  EXPECT_THAT(fault_of_product([](const Scene& s) {
                multiply_once(s);
                __syncwarp();
                float values[8];
                if (threadIdx.x < 32) ptx::tcgen05_ld_32x32b_x8(values, s.mine + 24);
              }),
              HasSubstr("reads column 24 of tensor memory, lanes 0 to 31, which tcgen05.mma.ss of "
                        "warp 0 writes: the warp has waited for no tcgen05.commit"));
  EXPECT_THAT(fault_of_product([](const Scene& s) {
                multiply_once(s);
                __syncthreads();
                std::uint32_t values[32] = {};
                if (threadIdx.x >= 96) ptx::tcgen05_st_32x32b_x32(s.mine, values);
              }),
              HasSubstr("tcgen05.st.32x32b.x32: writes to column 0 of tensor memory, lanes 96 to "
                        "127, which tcgen05.mma.ss of warp 0 writes: the warp has waited for no"));
  EXPECT_THAT(fault_of_product([](const Scene& s) { multiply_once(s); }),
              HasSubstr("tcgen05.dealloc: column 0, lanes 0 to 31, which tcgen05.mma.ss of warp 0 "
                        "has used: the warp has waited for no tcgen05.commit that covers it"));
}

TEST(ModelBlockOperand, ThreadsThatIssue) {
  EXPECT_THAT(fault_of_product([](const Scene& s) {
                multiply_once(s);
                __syncwarp();
                if (threadIdx.x == 1) ptx::tcgen05_commit(s.done);
              }),
              HasSubstr("tcgen05.commit: lane 0 of the warp issues its products, and a commit "
                        "covers those of its own thread alone"));
  // Another warp, whose products nothing orders behind the first.
  EXPECT_THAT(fault_of_product([](const Scene& s) {
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
  EXPECT_THAT(fault_of_product([](const Scene& s) {
                multiply_once(s);
                s.commit_and_wait();
                if (s.issues) ptx::tcgen05_commit(s.done);
              }),
              HasSubstr("the block ends"));
  EXPECT_THAT(fault_of_product([](const Scene& s) {
                if (s.issues) ptx::tcgen05_commit_multicast(s.done, 2);
              }),
              HasSubstr("tcgen05.commit.multicast: a mask of blocks 0x2 in a cluster of 1"));
}

}  // namespace
}  // namespace openvc::model
