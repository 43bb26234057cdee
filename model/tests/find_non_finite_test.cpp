// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/check/find_non_finite.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

#include "machine/machine.hpp"
#include "unit/cpu/test_tensor.hpp"

// The search for non-finite elements on the model: the first one, in whatever order warps find
// theirs.
namespace openvc::test {
namespace {

constexpr Shape kShape{2, 70, 3, 128};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::int64_t first_non_finite(const TestTensor& tensor, std::uint64_t seed) {
  model::set_seed(seed);
  const std::int64_t found = cuda::find_non_finite(tensor.view(), {});
  model::set_seed(0);
  return found;
}

TEST(ModelFindNonFinite, TheFirstOfSeveral) {
  constexpr Shape kGaps{kShape[1] * 400, 400, 131, 1};  // NaNs between the rows
  for (const ElementType type :
       {ElementType::bfloat16, ElementType::float16, ElementType::float32}) {
    for (const std::uint64_t seed : {0, 1}) {
      TestTensor tensor(type, kShape, kGaps);
      tensor.fill([](auto, auto, auto, auto) { return 1.0f; });
      EXPECT_EQ(first_non_finite(tensor, seed), -1);
      tensor.set(1, 69, 2, 127, kInfinity);  // the last
      EXPECT_EQ(first_non_finite(tensor, seed), 2 * 70 * 3 * 128 - 1);
      tensor.set(1, 3, 1, 40, -kInfinity);
      tensor.set(0, 65, 2, 99, std::numeric_limits<float>::quiet_NaN());
      EXPECT_EQ(first_non_finite(tensor, seed), (65 * 3 + 2) * 128 + 99);
    }
  }
}

}  // namespace
}  // namespace openvc::test
