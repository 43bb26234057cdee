// SPDX-License-Identifier: BSD-3-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "product_operands.hpp"
#include "run_kernel.hpp"

// The faults of the protocol of products.
namespace openvc::model {
namespace {

using testing::HasSubstr;

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
  const Operand b(kValues, 128, 2);
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

TEST(ModelProduct, TileThatNobodyWrote) {
  EXPECT_THAT(fault_of_products([](Scene s) {
                s.b = (s.b & ~std::uint64_t{0x3FFF}) | 0x2000;
                ptx::wgmma_fence();
                multiply_once(s);
              }),
              HasSubstr("row 0 of B at 0x20000: nobody has written it"));
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
  const Operand other(kValues, 128, 9);
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
