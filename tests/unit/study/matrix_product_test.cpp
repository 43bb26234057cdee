// SPDX-License-Identifier: BSD-3-Clause
#include "study/matrix_product.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "study/counter_random.hpp"

namespace openvc::study {
namespace {

std::vector<float> random_floats(std::size_t count, std::uint64_t row) {
  std::vector<float> values((count + 3) / 4 * 4);
  CounterRandom(1, 1).fill_normal(row, values);
  values.resize(count);
  return values;
}

TEST(MatrixProduct, DotProductsMatchAPlainLoop) {
  for (const std::int64_t rows : {1, 3, 4, 9}) {
    for (const std::int64_t keys : {1, 7, 16, 33, 300}) {
      for (const std::int64_t channels : {128, 160, 256}) {
        const auto a = random_floats(static_cast<std::size_t>(rows * channels), 1);
        const auto b = random_floats(static_cast<std::size_t>(keys * channels), 2);
        std::vector<double> out(static_cast<std::size_t>(rows * keys), -1.0);
        dot_products(a.data(), rows, b.data(), keys, channels, out.data());
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < keys; ++j) {
            double expected = 0.0;
            for (std::int64_t c = 0; c < channels; ++c) {
              expected += static_cast<double>(a[static_cast<std::size_t>(i * channels + c)]) *
                          b[static_cast<std::size_t>(j * channels + c)];
            }
            ASSERT_NEAR(out[static_cast<std::size_t>(i * keys + j)], expected, 1e-12);
          }
        }
      }
    }
  }
}

TEST(MatrixProduct, WeightedSumsAreAddedToWhatIsThere) {
  constexpr std::int64_t kChannels = 128;
  for (const std::int64_t rows : {1, 4, 6}) {
    for (const std::int64_t keys : {1, 255, 256, 600}) {
      const auto weights = random_floats(static_cast<std::size_t>(rows * keys), 3);
      const auto values = random_floats(static_cast<std::size_t>(keys * kChannels), 4);
      const std::vector<double> wide(weights.begin(), weights.end());
      std::vector<double> out(static_cast<std::size_t>(rows * kChannels), 0.5);
      add_weighted_sums(wide.data(), rows, keys, values.data(), kChannels, out.data());
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t c = 0; c < kChannels; ++c) {
          double expected = 0.5;
          for (std::int64_t j = 0; j < keys; ++j) {
            expected += wide[static_cast<std::size_t>(i * keys + j)] *
                        values[static_cast<std::size_t>(j * kChannels + c)];
          }
          ASSERT_NEAR(out[static_cast<std::size_t>(i * kChannels + c)], expected, 1e-11);
        }
      }
    }
  }
}

}  // namespace
}  // namespace openvc::study
