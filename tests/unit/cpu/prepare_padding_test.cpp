// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cpu/prepare.hpp"
#include "unit/cpu/prepare_reference.hpp"
#include "unit/cpu/test_tensor.hpp"

// What the preparation writes where no token is: kernels rely on it instead of masking.
namespace openvc::test {
namespace {

using numerics::kColumnsPerStep;
using numerics::kHeadDim;
using numerics::kKeyBlock;

constexpr std::int64_t kHeads = 2;

struct KeyRows {
  std::int64_t keys;
  std::int64_t repaired;
};

class PreparePadding : public testing::TestWithParam<KeyRows> {
 protected:
  PreparePadding()
      : q_(ElementType::bfloat16, {1, 130, kHeads, kHeadDim}),
        k_(ElementType::bfloat16, {1, GetParam().keys, kHeads, kHeadDim}),
        v_(ElementType::bfloat16, {1, GetParam().keys, kHeads, kHeadDim}) {
    Random random(11);
    const auto value = [&](auto...) { return 1.0f + random.normal(); };
    request_.q = q_.fill(value).view();
    request_.k = k_.fill(value).view();
    request_.v = v_.fill(value).view();
    request_.problem.heads = kHeads;
    request_.problem.queries = 130;
    request_.problem.keys = GetParam().keys;
    request_.problem.repair_rows = GetParam().repaired;
    request_.softmax_scale = 0.08838834764831845f;
    request_.format = cpu::kPackedFormat;
    request_.numerics.max_extra_steps = 2;
    request_.numerics.score_error_target = 0.0f;
    prepared_ = run_prepare(request_);
  }

  [[nodiscard]] const std::byte* row(std::size_t section, std::int64_t index,
                                     std::int64_t width) const {
    return prepared_.bytes.data() + section + index * width;
  }

  /// A padding row of K, residual columns included, repeats row `last` of its head.
  void expect_repeats(std::int64_t head, std::int64_t last, std::int64_t key) const {
    const schedule::Problem& p = request_.problem;
    const auto expect_equal = [&](std::size_t section, std::int64_t first, std::int64_t width) {
      const std::byte* expected = row(section, first + last, width);
      EXPECT_TRUE(std::equal(expected, expected + width, row(section, first + key, width)))
          << "head " << head << ", row " << key << ", width " << width;
    };
    expect_equal(prepared_.layout.key_codes, head * p.padded_keys(), kHeadDim);
    for (int step = 0; step < request_.numerics.max_extra_steps; ++step) {
      const std::int64_t plane = step * p.batch_heads() + head;
      expect_equal(prepared_.layout.key_columns, plane * p.padded_keys(), kColumnsPerStep);
    }
  }

  TestTensor q_;
  TestTensor k_;
  TestTensor v_;
  schedule::PrepareRequest request_;
  PreparedBytes prepared_;
};

TEST_P(PreparePadding, KeysRepeatTheLastRowBeforeThem) {
  const schedule::Problem& p = request_.problem;
  const std::int64_t repair_start = p.key_blocks() * kKeyBlock;
  for (std::int64_t head = 0; head < kHeads; ++head) {
    for (std::int64_t key = p.keys; key < repair_start; ++key) {
      expect_repeats(head, p.keys - 1, key);
    }
    for (std::int64_t key = repair_start + p.repair_rows; key < p.padded_keys(); ++key) {
      expect_repeats(head, repair_start + p.repair_rows - 1, key);
    }
  }
}

TEST_P(PreparePadding, QueriesAreZero) {
  const schedule::Problem& p = request_.problem;
  const auto expect_zero = [&](std::size_t section, std::int64_t first, std::int64_t width) {
    const std::byte* begin = row(section, first + p.queries, width);
    const std::byte* end = row(section, first + prepared_.layout.query_rows, width);
    EXPECT_EQ(std::count(begin, end, std::byte{0}), end - begin);
  };
  for (std::int64_t head = 0; head < kHeads; ++head) {
    expect_zero(prepared_.layout.query_codes, head * prepared_.layout.query_rows, kHeadDim);
    for (int step = 0; step < request_.numerics.max_extra_steps; ++step) {
      const std::int64_t plane = step * p.batch_heads() + head;
      expect_zero(prepared_.layout.query_columns, plane * prepared_.layout.query_rows,
                  kColumnsPerStep);
    }
  }
}

// Offsets, permutation and the code of 1 are written out again on purpose.
TEST_P(PreparePadding, OnlyKeysOfTheDenominatorHaveWeight) {
  constexpr int kKeyInSlot[] = {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15};
  constexpr std::byte kOne{0x38};
  const schedule::Problem& p = request_.problem;
  const std::int64_t repair_start = p.key_blocks() * 128;
  for (std::int64_t block = 0; block < kHeads * p.padded_key_blocks(); ++block) {
    const std::byte* codes = row(prepared_.layout.value_codes, block, 136 * 128);
    for (int slot = 0; slot < 128; ++slot) {
      const std::int64_t key =
          block % p.padded_key_blocks() * 128 + slot / 16 * 16 + kKeyInSlot[slot % 16];
      const bool counts = key < p.keys;
      const bool repairs = key >= repair_start && key < repair_start + p.repair_rows;
      ASSERT_EQ(codes[135 * 128 + slot], counts ? kOne : std::byte{0})
          << "block " << block << ", slot " << slot;
      for (int column_row = 128; column_row < 135; ++column_row) {
        ASSERT_EQ(codes[column_row * 128 + slot], std::byte{0})
            << "block " << block << ", row " << column_row << ", slot " << slot;
      }
      if (counts || repairs) continue;
      for (int channel = 0; channel < 128; ++channel) {
        ASSERT_EQ(codes[channel * 128 + slot], std::byte{0})
            << "block " << block << ", channel " << channel << ", slot " << slot;
      }
    }
  }
}

constexpr KeyRows kKeyRows[] = {{1, 0},     {1, 1},   {127, 0},   {128, 0},
                                {128, 128}, {129, 5}, {131, 129}, {300, 0}};

INSTANTIATE_TEST_SUITE_P(, PreparePadding, testing::ValuesIn(kKeyRows), [](const auto& test) {
  return std::to_string(test.param.keys) + "_keys_" + std::to_string(test.param.repaired) +
         "_repaired";
});

}  // namespace
}  // namespace openvc::test
