// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "numerics/half.hpp"
#include "unit/numerics/oracles.hpp"
#include "unit/numerics/sweep.hpp"

namespace openvc::numerics {
namespace {

/// Compares a conversion and back with rounding by value, over every float. Signs of zero count.
template <class Convert, class Round>
testing::Mismatches compare_all_floats(const Convert& convert, const Round& round) {
  return testing::sweep(std::uint64_t{1} << 32,
                        [&](std::uint64_t begin, std::uint64_t end, testing::Mismatches& found) {
                          for (std::uint64_t bits = begin; bits < end; ++bits) {
                            const float x = float_from_bits(static_cast<std::uint32_t>(bits));
                            const double exact = static_cast<double>(x);
                            const double got = static_cast<double>(convert(x));
                            const double want = round(exact);
                            found.check(want, got, exact);
                            if (std::signbit(got) != std::signbit(exact))
                              found.check(exact, -1.0 * exact, exact);
                          }
                        });
}

TEST(HalfAllFloats, RoundsByValue) {
  const testing::Mismatches mismatches =
      compare_all_floats([](float x) { return half_to_float(float_to_half(x)); },
                         [](double x) { return testing::round_to_half(x); });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

TEST(Bfloat16AllFloats, RoundsByValue) {
  const testing::Mismatches mismatches =
      compare_all_floats([](float x) { return bfloat16_to_float(float_to_bfloat16(x)); },
                         [](double x) { return testing::round_to_format(x, testing::kBfloat16); });
  EXPECT_EQ(mismatches.count, 0u) << mismatches;
}

}  // namespace
}  // namespace openvc::numerics
