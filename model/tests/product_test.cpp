// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "numerics/half.hpp"
#include "product_operands.hpp"
#include "run_kernel.hpp"

// Products of a warpgroup against binary64: which registers have which sums. How sums are rounded
// is in product_rounding_test.cpp.
namespace openvc::model {
namespace {

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
    expect_scores<ptx::Swizzle::bytes_128>(Operand(kQueries, 128, 1, kShortCodes),
                                           Operand(kKeys, 128, 2, kShortCodes), schedule);
    expect_scores<ptx::Swizzle::bytes_32>(Operand(kQueries, 32, 3, kShortCodes),
                                          Operand(kKeys, 32, 4, kShortCodes), schedule);
  }
}

TEST(ModelProduct, Binary32SumsWithAInRegisters) {
  const Operand a(kQueries, kDepth, 5, kShortCodes);
  const Operand b(kValues, kDepth, 6, kShortCodes);
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

}  // namespace
}  // namespace openvc::model
