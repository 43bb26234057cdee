// SPDX-License-Identifier: BSD-3-Clause
#include "study/int8_scores.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "study/families.hpp"
#include "unit/study/head_inputs.hpp"

namespace openvc::study {
namespace {

constexpr std::int64_t kChannels = 128;
constexpr double kCodeUnitsPerNat = 11.541560327111707;  // 8 log2(e)

std::vector<double> rows_of(const TensorView& tensor) {
  std::vector<double> rows;
  std::vector<float> row(kChannels);
  for (std::int64_t s = 0; s < tensor.shape[kSequence]; ++s) {
    load_row(tensor, 0, s, 0, row);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return rows;
}

void subtract_mean(std::vector<double>& rows) {
  const auto tokens = static_cast<double>(rows.size()) / kChannels;
  for (std::size_t c = 0; c < kChannels; ++c) {
    double sum = 0.0;
    for (std::size_t i = c; i < rows.size(); i += kChannels) sum += rows[i];
    for (std::size_t i = c; i < rows.size(); i += kChannels) rows[i] -= sum / tokens;
  }
}

/// By the definition of the matrix: the sign is the parity of the common bits of row and column.
void rotate(std::vector<double>& rows) {
  std::vector<double> rotated(rows.size());
  for (std::size_t i = 0; i < rows.size(); i += kChannels) {
    for (std::size_t a = 0; a < kChannels; ++a) {
      for (std::size_t b = 0; b < kChannels; ++b) {
        const bool odd = __builtin_popcountll(a & b) % 2 != 0;
        rotated[i + a] += (odd ? -1.0 : 1.0) * rows[i + b] / std::sqrt(double{kChannels});
      }
    }
  }
  rows = rotated;
}

/// Rounded and multiplied by its scale again.
void round_in_blocks(std::vector<double>& rows, std::int64_t rows_of_a_scale) {
  const auto block = static_cast<std::size_t>(rows_of_a_scale * kChannels);
  for (std::size_t first = 0; first < rows.size(); first += block) {
    const std::size_t last = std::min(first + block, rows.size());
    double amax = 0.0;
    for (std::size_t i = first; i < last; ++i) amax = std::max(amax, std::abs(rows[i]));
    for (std::size_t i = first; i < last; ++i) {
      rows[i] = std::nearbyint(rows[i] / amax * 127.0) * amax / 127.0;
    }
  }
}

class Int8Scores : public testing::TestWithParam<Int8Form> {};

TEST_P(Int8Scores, AreThoseOfTheDefinition) {
  const Int8Form form = GetParam();
  const Tensors in = generate("channel_outliers", {1, 150, 300, 1}, ElementType::float32);
  const HeadInputs inputs = head_inputs(in);
  std::vector<double> q = rows_of(inputs.q);
  std::vector<double> k = rows_of(inputs.k);
  subtract_mean(k);
  if (form.rotated) {
    rotate(q);
    rotate(k);
  }
  round_in_blocks(q, form.query_rows);
  round_in_blocks(k, form.key_rows);

  const std::vector<std::int64_t> rows = {0, 1, 63, 64, 100, 149};
  const Int8Head head(inputs, rows, form);
  double largest = 0.0;
  double difference = 0.0;
  std::int64_t moved = 0;
  for (const std::int64_t first : {0, 3}) {
    const Scores found = head.scores(first, 3);
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 300; ++j) {
        const auto row = static_cast<std::size_t>(rows[static_cast<std::size_t>(first + i)]);
        double expected = 0.0;
        for (std::size_t c = 0; c < kChannels; ++c) {
          expected += q[row * kChannels + c] * k[static_cast<std::size_t>(j * kChannels) + c];
        }
        expected *= kCodeUnitsPerNat / std::sqrt(double{kChannels});
        const double error =
            std::abs(found.values[static_cast<std::size_t>(i * 300 + j)] - expected);
        largest = std::max(largest, std::abs(expected));
        difference = std::max(difference, error);
        if (error > 1e-5 * std::abs(expected) + 1e-3) ++moved;
      }
    }
  }
  // A value at the border of two codes goes either way in binary32, and moves the scores of a row.
  EXPECT_LT(difference, 0.01 * largest);
  EXPECT_LT(moved, 90);
}

INSTANTIATE_TEST_SUITE_P(Forms, Int8Scores, testing::ValuesIn(kInt8Forms),
                         [](const auto& form) { return std::string(form.param.id); });

TEST(Int8Scores, ZerosHaveScoresOfZero) {
  Tensors in = generate("gaussian", {1, 5, 5, 1}, ElementType::float32);
  std::ranges::fill(in.q.bytes, std::byte{0});
  const std::vector<std::int64_t> rows = {0, 4};
  for (const Int8Form& form : kInt8Forms) {
    const Scores found = Int8Head(head_inputs(in), rows, form).scores(0, 2);
    EXPECT_TRUE(std::ranges::all_of(found.values, [](double x) { return x == 0.0; }));
  }
}

}  // namespace
}  // namespace openvc::study
