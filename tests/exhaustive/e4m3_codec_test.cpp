// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cpu/e4m3_lanes.hpp"
#include "numerics/e4m3.hpp"
#include "unit/numerics/cuda_fp8_oracle.hpp"
#include "unit/numerics/oracles.hpp"
#include "unit/numerics/sweep.hpp"

namespace openvc::numerics {
namespace {

constexpr std::uint64_t kAllFloats = std::uint64_t{1} << 32;

/// Compares e4m3_encode with another encoder over every float.
template <class Encode>
testing::Mismatches compare_all_floats(const Encode& expected) {
  return testing::sweep(kAllFloats,
                        [&](std::uint64_t begin, std::uint64_t end, testing::Mismatches& found) {
                          for (std::uint64_t bits = begin; bits < end; ++bits) {
                            const float x = float_from_bits(static_cast<std::uint32_t>(bits));
                            const std::uint8_t want = expected(x);
                            const std::uint8_t got = e4m3_encode(x);
                            if (want != got) found.check(want, got, static_cast<double>(x));
                          }
                        });
}

TEST(E4m3AllFloats, RoundsByValue) {
  const testing::Mismatches mismatches = testing::sweep(
      kAllFloats, [](std::uint64_t begin, std::uint64_t end, testing::Mismatches& found) {
        for (std::uint64_t bits = begin; bits < end; ++bits) {
          const float x = float_from_bits(static_cast<std::uint32_t>(bits));
          const double exact = static_cast<double>(x);
          const double size =
              std::min(std::fabs(testing::round_to_format(exact, testing::kE4m3)), 448.0);
          const std::uint8_t code = e4m3_encode(x);
          const double value = static_cast<double>(e4m3_decode(code));
          if (std::isnan(x)
                  ? code == kE4m3Nan
                  : value == std::copysign(size, exact) && std::signbit(value) == std::signbit(x)) {
            continue;
          }
          found.check(std::copysign(size, exact), std::isnan(x) ? code : value, exact);
        }
      });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

TEST(E4m3AllFloats, EncodesLikeCudaFp8) {
  if (!testing::kHaveCudaFp8) GTEST_SKIP() << "cuda_fp8.h was not found when this was built";
  const testing::Mismatches mismatches = compare_all_floats(testing::cuda_fp8_encode);
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

TEST(E4m3AllFloats, BranchFreeLanesOfTheCpuBackendAgree) {
  const testing::Mismatches mismatches = compare_all_floats(
      [](float x) { return static_cast<std::uint8_t>(cpu::encode_e4m3_lane(x)); });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

}  // namespace
}  // namespace openvc::numerics
