// SPDX-License-Identifier: BSD-3-Clause
#include "machine/ex2.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <ios>
#include <map>
#include <string>
#include <vector>

#include "numerics/bits.hpp"
#include "numerics/half.hpp"

// ex2.approx of the model against an H200's: benchmarks/cuda/ex2_rounding.cu has written
// h200_ex2.bin, and describes it, and counted the rest.
namespace openvc::model {
namespace {

constexpr int kHalves = 1 << 16;
constexpr int kFractions = 1 << 16;

float nearest(float x) {
  const auto result = static_cast<float>(std::exp2(static_cast<double>(x)));
  return result < numerics::exp2_int(numerics::kFloatMinNormalExponent) ? 0.0f : result;
}

std::int64_t units_above_nearest(float x) {
  if (std::isnan(x)) return std::isnan(ex2(x)) ? 0 : 1;
  return std::int64_t{numerics::float_bits(ex2(x))} - numerics::float_bits(nearest(x));
}

TEST(ModelEx2, EqualsAnH200s) {
  const std::string path = OPENVC_REPOSITORY_DIRECTORY "/model/tests/h200_ex2.bin";
  std::ifstream file(path, std::ios::binary);
  std::vector<std::int8_t> expected(kHalves + kFractions);
  file.read(reinterpret_cast<char*>(expected.data()),
            static_cast<std::streamsize>(expected.size()));
  ASSERT_TRUE(file) << path;
  int differing = 0;
  for (int i = 0; i < kHalves; ++i) {
    const float x = numerics::half_to_float(static_cast<std::uint16_t>(i)) / 8;
    differing += units_above_nearest(x) == expected[static_cast<std::size_t>(i)] ? 0 : 1;
  }
  EXPECT_EQ(differing, 0) << "of 2^(h / 8), h of binary16";
  differing = 0;
  for (int i = 0; i < kFractions; ++i) {
    const float x = static_cast<float>(i) / kFractions;
    differing += units_above_nearest(x) == expected[static_cast<std::size_t>(kHalves + i)] ? 0 : 1;
  }
  EXPECT_EQ(differing, 0) << "of 2^(k / 65536)";
}

TEST(ModelEx2, CountsOfAnOctaveAreAnH200s) {
  constexpr int kAll = 1 << numerics::kFloatMantissaBits;
  std::map<std::int64_t, int> counts;
  for (int i = 0; i < kAll; ++i) ++counts[units_above_nearest(static_cast<float>(i) / kAll)];
  const std::map<std::int64_t, int> of_the_card{{-1, 3093}, {0, 5125875}, {1, 3259640}};
  EXPECT_EQ(counts, of_the_card);
}

}  // namespace
}  // namespace openvc::model
