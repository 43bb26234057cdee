// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda/host/tensor_map.hpp"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/synchronize.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"
#include "run_kernel.hpp"

// Products of a warpgroup against binary64, and the faults of their protocol.
namespace openvc::model {
namespace {

using namespace cuda;
using testing::HasSubstr;

constexpr int kQueries = 64;
constexpr int kKeys = 128;
constexpr int kValues = 136;
constexpr int kDepth = 128;

/// Codes of modest numbers, rows of `width` of them.
std::vector<std::uint8_t> codes(int rows, int width, unsigned seed) {
  std::vector<std::uint8_t> result(static_cast<std::size_t>(rows * width) + 16);
  for (std::uint8_t& code : result) {
    seed = seed * 1664525u + 1013904223u;
    code = static_cast<std::uint8_t>((seed >> 31 << 7) | (0x28 + (seed >> 20) % 24));
  }
  return result;
}

struct Operand {
  int rows;
  int width;
  std::vector<std::uint8_t> storage;

  Operand(int row_count, int row_bytes, unsigned seed)
      : rows(row_count), width(row_bytes), storage(codes(row_count, row_bytes, seed)) {}
  [[nodiscard]] const std::uint8_t* data() const {
    return storage.data() + (16 - reinterpret_cast<std::uintptr_t>(storage.data()) % 16) % 16;
  }
  [[nodiscard]] CUtensorMap map() const {
    const auto row = static_cast<std::uint64_t>(width);
    const auto count = static_cast<std::uint64_t>(rows);
    return encode_tensor_map(
        {.data = data(),
         .shape = {row, count, 1},
         .row_bytes = row,
         .plane_bytes = row * count,
         .box = {static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(rows)}},
        width == 128 ? TileSwizzle::bytes_128 : TileSwizzle::bytes_32);
  }
  [[nodiscard]] double at(int row, int k) const {
    return double{numerics::e4m3_decode(data()[row * width + k])};
  }
  /// Sum over k of row i of this times row j of another, from `first` on.
  [[nodiscard]] double dot(int i, const Operand& b, int j, int first, int count) const {
    double sum = 0.0;
    for (int k = first; k < first + count; ++k) sum += at(i, k) * b.at(j, k);
    return sum;
  }
};

struct alignas(1024) Shared {
  std::array<std::uint8_t, kQueries * kDepth> a;
  alignas(1024) std::array<std::uint8_t, kValues * kDepth> b;
  std::uint64_t full;
};

/// Initialises the barrier and starts both copies; `wait` waits for them.
void load(Shared& shared, const CUtensorMap& a, const CUtensorMap& b, bool wait = true) {
  const std::uint32_t full = ptx::shared_address(&shared.full);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(full, 1);
    ptx::fence_mbarrier_init();
    ptx::mbarrier_arrive_expect_tx(full, a.box[0] * a.box[1] + b.box[0] * b.box[1]);
    ptx::cp_async_bulk_tensor_3d(ptx::shared_address(shared.a.data()), &a, full, 0, 0, 0);
    ptx::cp_async_bulk_tensor_3d(ptx::shared_address(shared.b.data()), &b, full, 0, 0, 0);
  }
  __syncthreads();
  if (wait) ptx::mbarrier_wait(full, 0);
}

template <ptx::Swizzle kSwizzle>
std::uint64_t descriptor(const void* tile) {
  return ptx::matrix_descriptor<kSwizzle>(ptx::shared_address(tile));
}

int warp() { return static_cast<int>(threadIdx.x) / 32; }

// PTX ISA, figure of the D fragment of wgmma m64nNk32: columns 8 j + 2 (lane % 4) and the next,
// rows 16 warp + lane / 4 and 8 further.
int d_row(int half) { return 16 * warp() + lane() / 4 + 8 * half; }
int d_column(int j) { return 8 * j + 2 * (lane() % 4); }

template <ptx::Swizzle kSwizzle>
void expect_scores(const Operand& a, const Operand& b, const Schedule& schedule) {
  SCOPED_TRACE(schedule.describe());
  const CUtensorMap a_map = a.map();
  const CUtensorMap b_map = b.map();
  std::vector<float> d(kQueries * kKeys, -1.0f);
  const auto kernel = [&] {
    auto& shared = ptx::static_shared<Shared>();
    load(shared, a_map, b_map);
    std::uint32_t sums[32];
    ptx::warpgroup_undefined_operand(sums);
    ptx::wgmma_fence();
    for (int step = 0; step < a.width / 32; ++step) {
      ptx::wgmma_m64n128k32_f16_ss(
          sums, ptx::advance_descriptor(descriptor<kSwizzle>(shared.a.data()), 32 * step),
          ptx::advance_descriptor(descriptor<kSwizzle>(shared.b.data()), 32 * step), step != 0);
    }
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    for (int j = 0; j < kKeys / 8; ++j) {
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t pair = sums[2 * j + half];
        float* row = d.data() + d_row(half) * kKeys + d_column(j);
        row[0] = numerics::half_to_float(static_cast<std::uint16_t>(pair));
        row[1] = numerics::half_to_float(static_cast<std::uint16_t>(pair >> 16));
      }
    }
  };
  ASSERT_EQ(fault_of({.threads = 128}, schedule, kernel), "");
  for (int i = 0; i < kQueries; ++i) {
    for (int j = 0; j < kKeys; ++j) {
      float expected = 0.0f;  // rounded after every product
      for (int k = 0; k < a.width; k += 32) {
        expected = numerics::half_to_float(
            numerics::float_to_half(static_cast<float>(double{expected} + a.dot(i, b, j, k, 32))));
      }
      ASSERT_EQ(d[static_cast<std::size_t>(i * kKeys + j)], expected) << i << " " << j;
    }
  }
}

TEST(ModelProduct, Binary16SumsOfSharedMemory) {
  for (const Schedule& schedule : kAllSchedules) {
    expect_scores<ptx::Swizzle::bytes_128>(Operand(kQueries, 128, 1), Operand(kKeys, 128, 2),
                                           schedule);
    expect_scores<ptx::Swizzle::bytes_32>(Operand(kQueries, 32, 3), Operand(kKeys, 32, 4),
                                          schedule);
  }
}

TEST(ModelProduct, Binary32SumsWithAInRegisters) {
  const Operand a(kQueries, kDepth, 5);
  const Operand b(kValues, kDepth, 6);
  const CUtensorMap a_map = a.map();
  const CUtensorMap b_map = b.map();
  for (const Schedule& schedule : kAllSchedules) {
    SCOPED_TRACE(schedule.describe());
    std::vector<float> d(kQueries * kValues, -1.0f);
    const auto kernel = [&] {
      auto& shared = ptx::static_shared<Shared>();
      load(shared, a_map, b_map);
      // Figure of the A fragment: row lane / 4 (+ 8 in odd registers), bytes 4 (lane % 4) of k, 16
      // further in the upper two.
      std::uint32_t fragment[kDepth / 8];
      for (int step = 0; step < kDepth / 32; ++step) {
        for (int i = 0; i < 4; ++i) {
          const int row = 16 * warp() + lane() / 4 + 8 * (i % 2);
          const int k = 32 * step + 4 * (lane() % 4) + 16 * (i / 2);
          std::uint32_t bytes = 0;
          for (int byte = 0; byte < 4; ++byte) {
            bytes |= std::uint32_t{a.data()[row * kDepth + k + byte]} << (8 * byte);
          }
          fragment[4 * step + i] = bytes;
        }
      }
      float sums[68];
      ptx::warpgroup_undefined_operand(sums);
      ptx::wgmma_fence();
      for (int step = 0; step < kDepth / 32; ++step) {
        ptx::wgmma_m64n136k32_f32_rs(
            sums, fragment + 4 * step,
            ptx::advance_descriptor(descriptor<ptx::Swizzle::bytes_128>(shared.b.data()),
                                    32 * step),
            step != 0);
      }
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<0>();
      for (int j = 0; j < kValues / 8; ++j) {
        for (int i = 0; i < 4; ++i) {
          d[static_cast<std::size_t>(d_row(i / 2) * kValues + d_column(j) + i % 2)] =
              sums[4 * j + i];
        }
      }
    };
    ASSERT_EQ(fault_of({.threads = 128}, schedule, kernel), "");
    for (int i = 0; i < kQueries; ++i) {
      for (int j = 0; j < kValues; ++j) {
        float expected = 0.0f;
        for (int k = 0; k < kDepth; k += 32) {
          expected = static_cast<float>(double{expected} + a.dot(i, b, j, k, 32));
        }
        ASSERT_EQ(d[static_cast<std::size_t>(i * kValues + j)], expected) << i << " " << j;
      }
    }
  }
}

// ---- faults -------------------------------------------------------------------------------------

/// What a faulty kernel works with.
struct Scene {
  Shared& shared;
  std::uint64_t a;
  std::uint64_t b;
  std::uint32_t (&sums)[32];
};

/// The message of a kernel that loads its tiles, waits for them if told so, and goes on with
/// `body`.
std::string fault_of_products(const std::function<void(Scene)>& body, bool wait = true) {
  const Operand a(kQueries, 128, 1);
  const Operand b(kKeys, 128, 2);
  const CUtensorMap a_map = a.map();
  const CUtensorMap b_map = b.map();
  const auto kernel = [&] {
    auto& shared = ptx::static_shared<Shared>();
    load(shared, a_map, b_map, wait);
    std::uint32_t sums[32] = {};
    body({shared, descriptor<ptx::Swizzle::bytes_128>(shared.a.data()),
          descriptor<ptx::Swizzle::bytes_128>(shared.b.data()), sums});
  };
  return fault_of({.threads = 128}, {0, Turns::in_order, Engines::lazy}, kernel);
}

void multiply_once(Scene s) {
  ptx::wgmma_m64n128k32_f16_ss(s.sums, s.a, s.b, false);
  ptx::wgmma_commit_group();
}

TEST(ModelProduct, TileThatNobodyWaitedFor) {
  const auto body = [](Scene s) {
    ptx::wgmma_fence();
    multiply_once(s);
    ptx::wgmma_wait_group<0>();
  };
  EXPECT_EQ(fault_of_products(body), "");
  EXPECT_THAT(
      fault_of_products(body, false),
      HasSubstr("wgmma.m64n128k32.f16: row 0 of A at 0x400: a copy of warp 0 that writes it "
                "is in flight; wait for its barrier"));
}

TEST(ModelProduct, SumsBeforeTheWaitArePoison) {
  std::uint32_t early = 0;
  EXPECT_EQ(fault_of_products([&](Scene s) {
              ptx::wgmma_fence();
              multiply_once(s);
              early = s.sums[5];
              ptx::wgmma_wait_group<0>();
            }),
            "");
  EXPECT_EQ(early, 0xFFFF'FFFFu);
}

TEST(ModelProduct, SumsThatAreWrittenBeforeTheWait) {
  EXPECT_THAT(fault_of_products([](Scene s) {
                ptx::wgmma_fence();
                multiply_once(s);
                s.sums[5] = 0;
                ptx::wgmma_wait_group<0>();
              }),
              HasSubstr("registers of D were written before the product was waited for"));
}

TEST(ModelProduct, NoFenceBeforeAProduct) {
  EXPECT_THAT(fault_of_products([](Scene s) { multiply_once(s); }),
              HasSubstr("no wgmma.fence since the warp last had access to the registers"));
}

TEST(ModelProduct, ThreadThatEndsWithoutAWait) {
  EXPECT_THAT(fault_of_products([](Scene s) {
                ptx::wgmma_fence();
                multiply_once(s);
              }),
              HasSubstr("ends before it has waited for its products"));
}

TEST(ModelProduct, TileThatIsStoredOverBeforeTheWait) {
  EXPECT_THAT(fault_of_products([](Scene s) {
                ptx::wgmma_fence();
                multiply_once(s);
                s.shared.b[17] ^= 1;
                ptx::wgmma_wait_group<0>();
              }),
              HasSubstr("wgmma.m64n128k32.f16: B has changed before the product was waited for"));
}

TEST(ModelProduct, TileThatIsCopiedOverBeforeTheWait) {
  const Operand other(kKeys, 128, 9);
  const CUtensorMap map = other.map();
  EXPECT_THAT(fault_of_products([&](Scene s) {
                ptx::wgmma_fence();
                multiply_once(s);
                if (threadIdx.x == 96) {
                  ptx::cp_async_bulk_tensor_3d(ptx::shared_address(s.shared.b.data()), &map,
                                               ptx::shared_address(&s.shared.full), 0, 0, 0);
                }
                ptx::wgmma_wait_group<0>();
              }),
              HasSubstr("thread 96: cp.async.bulk.tensor.3d: writes to 0x2400 of block 0, and "
                        "nothing orders a product of warp 0 that reads there before this"));
}

TEST(ModelProduct, StoresWithoutAProxyFence) {
  const auto body = [](bool fences) {
    return [fences](Scene s) {
      s.shared.b[threadIdx.x] = 0x38;
      if (fences) ptx::fence_proxy_async_shared();
      __syncthreads();
      ptx::wgmma_fence();
      multiply_once(s);
      ptx::wgmma_wait_group<0>();
    };
  };
  EXPECT_EQ(fault_of_products(body(true)), "");
  EXPECT_THAT(fault_of_products(body(false)),
              HasSubstr("row 0 of B at 0x2400: threads have stored it, and no fence.proxy.async "
                        "came between"));
}

/// The fault of a product whose descriptor of B is changed.
std::string fault_of_descriptor(const std::function<std::uint64_t(std::uint64_t)>& change) {
  return fault_of_products([&](Scene s) {
    s.b = change(s.b);
    ptx::wgmma_fence();
    multiply_once(s);
    ptx::wgmma_wait_group<0>();
  });
}

TEST(ModelProduct, WrongDescriptors) {
  using Word = std::uint64_t;
  EXPECT_EQ(fault_of_descriptor([](Word d) { return d + (96 >> 4); }), "");
  EXPECT_THAT(
      fault_of_descriptor([](Word d) { return d + (Word{128 >> 4} << 32); }),
      HasSubstr("expected row 8, chunk 0 of the tile, found row 9, chunk 0; the stride byte "
                "offset of the descriptor is 1152"));
  EXPECT_THAT(
      fault_of_descriptor([](Word d) { return (d & ~(Word{3} << 62)) | Word{2} << 62; }),
      HasSubstr("the descriptor says a swizzle of 64 bytes, the tile was copied with one of "
                "128"));
  EXPECT_THAT(fault_of_descriptor([](Word d) { return d & ~(Word{3} << 62); }),
              HasSubstr("no swizzle"));
  EXPECT_THAT(fault_of_descriptor([](Word d) { return d + (256 >> 4); }),
              HasSubstr("the tile starts at 0x2500; expected a multiple of 1024"));
  EXPECT_THAT(fault_of_descriptor([](Word d) { return d + (112 >> 4); }),
              HasSubstr("32 bytes of k reach beyond the swizzle's span of 128"));
  EXPECT_THAT(fault_of_descriptor([](Word d) { return d | Word{1} << 49; }),
              HasSubstr("a base offset"));
  EXPECT_THAT(fault_of_descriptor([](Word d) { return d | Word{1} << 47; }),
              HasSubstr("bits that must be zero are not"));
  EXPECT_THAT(fault_of_descriptor([](Word d) { return (d & ~Word{0x3FFF}) | 0x3FC0; }),
              HasSubstr("outside of shared memory"));
}

TEST(ModelProduct, WarpsOfAWarpgroupIssueTheSame) {
  EXPECT_THAT(fault_of_products([](Scene s) {
                ptx::wgmma_fence();
                if (warp() == 2) s.b += 2;
                multiply_once(s);
                ptx::wgmma_wait_group<0>();
              }),
              HasSubstr("another warp of the warpgroup issued wgmma.m64n128k32.f16, or with other "
                        "operands"));
  EXPECT_THAT(fault_of_products([](Scene s) {
                if (warp() == 3) return;
                ptx::wgmma_fence();
                multiply_once(s);
                ptx::wgmma_wait_group<0>();
              }),
              HasSubstr("the warps of a warpgroup have issued unlike numbers of products"));
  EXPECT_THAT(fault_of_products([](Scene s) {
                ptx::wgmma_fence();
                if (lane() == 3) s.b += 2;
                multiply_once(s);
              }),
              HasSubstr("lanes of the warp have unlike operands"));
}

TEST(ModelProduct, DivergentProducts) {
  EXPECT_THAT(fault_of_products([](Scene s) {
                ptx::wgmma_fence();
                if (lane() < 16) {
                  multiply_once(s);
                } else {
                  ptx::wgmma_commit_group();
                }
              }),
              HasSubstr("wgmma.m64n128k32.f16 while other lanes of the warp are in wgmma.commit"));
}

TEST(ModelProduct, RegistersOfAThatChangeBeforeTheWait) {
  EXPECT_THAT(fault_of_products([](Scene s) {
                float sums[68];
                std::uint32_t a[4] = {1, 2, 3, 4};
                ptx::wgmma_fence();
                ptx::wgmma_m64n136k32_f32_rs(sums, a, s.b, false);
                ptx::wgmma_commit_group();
                a[2] = 5;
                ptx::wgmma_wait_group<0>();
              }),
              HasSubstr("A has changed before the product was waited for"));
}

}  // namespace
}  // namespace openvc::model
