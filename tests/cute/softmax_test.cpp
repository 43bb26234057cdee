// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cuda/attention/fragment_output.cuh"
#include "cuda/attention/fragment_softmax.cuh"
#include "cuda/sm90/mainloop.cuh"
#include "cute/oracle/oracle.hpp"
#include "machine/machine.hpp"
#include "numerics/half.hpp"
#include "numerics/head_rule.hpp"
#include "numerics/key_permutation.hpp"

// What the softmax of Hopper takes for granted about the registers of a thread.
namespace openvc::cute_oracle {
namespace {

using namespace cuda;
using namespace cuda;
using namespace cuda::sm90;

constexpr std::uint16_t kHidden = 0xFC00;  // -inf

std::uint16_t half_of(std::uint32_t pair, std::size_t i) {
  return static_cast<std::uint16_t>(pair >> (16 * (i % 2)));
}
void set_half(std::uint32_t& pair, std::size_t i, std::uint16_t half) {
  pair = (pair & (i % 2 == 0 ? 0xFFFF'0000u : 0xFFFFu)) | std::uint32_t{half} << (16 * (i % 2));
}

/// Place of a code in the probabilities: register and byte in one.
std::size_t place_of_code(std::size_t score) {
  Scores scores;
  std::fill(std::begin(scores), std::end(scores), cuda::kMinusInfinities);
  set_half(scores[score / 2], score, 0);
  Probabilities codes;
  exp_cast<ExpCastPath::narrow>(scores, codes, 0, numerics::HeadRule{});  // of tops 0
  std::size_t place = 0;
  int found = 0;
  for (std::size_t i = 0; i < 4 * std::size(codes); ++i) {
    if ((codes[i / 4] >> (8 * (i % 4)) & 0xFFu) == 0) continue;
    place = i;
    ++found;
  }
  EXPECT_EQ(found, 1) << "codes of one score, value " << score;
  return place;
}

TEST(CuteSoftmax, CodesAreTheOperandOfTheirKeys) {
  const Fragment scores = wgmma_f16_n128().sums;
  const Fragment operand = wgmma_f32_n136().a;
  ASSERT_EQ(scores[0].size(), 2u * kScoreRegisters);
  const std::size_t step_values = operand[0].size();
  ASSERT_EQ(step_values * kValueSteps, 4u * kProbabilityRegisters);
  for (std::size_t score = 0; score < scores[0].size(); ++score) {
    const std::size_t place = place_of_code(score);
    const auto step = static_cast<int>(place / step_values);
    for (std::size_t thread = 0; thread < scores.size(); ++thread) {
      const auto [row, key] = scores[thread][score];
      const auto [code_row, k] = operand[thread][place % step_values];
      const int slot = step * kStepBytes + k;
      ASSERT_EQ(code_row, row) << "value " << score << " of thread " << thread;
      ASSERT_EQ(numerics::key_of_slot(slot), key) << "value " << score << " of thread " << thread;
      ASSERT_EQ(numerics::slot_of_key(key), slot) << "value " << score << " of thread " << thread;
    }
  }
}

TEST(CuteSoftmax, MasksHideKeysFromTheirLimit) {
  const Fragment fragment = wgmma_f16_n128().sums;
  model::launch({.threads = kWarpgroupThreads}, [&] {
    const std::vector<Element>& elements = fragment[threadIdx.x];
    for (int limit = 0; limit <= numerics::kKeyBlock; ++limit) {
      const int high_limit = numerics::kKeyBlock - limit;
      Scores scores = {};
      mask_scores(scores, limit, high_limit);
      for (std::size_t i = 0; i < elements.size(); ++i) {
        const bool is_high = elements[i].row % 16 >= 8;
        const bool is_hidden = elements[i].column >= (is_high ? high_limit : limit);
        ASSERT_EQ(half_of(scores[i / 2], i), is_hidden ? kHidden : 0)
            << "value " << i << " of thread " << threadIdx.x << ", limits " << limit << " and "
            << high_limit;
      }
    }
  });
}

/// One score of a row is its number, the others are less.
TEST(CuteSoftmax, TopsAreThoseOfTheRows) {
  const Fragment fragment = wgmma_f16_n128().sums;
  const auto top_column = [](int row) { return row * 37 % numerics::kKeyBlock; };
  model::launch({.threads = kWarpgroupThreads}, [&] {
    const std::vector<Element>& elements = fragment[threadIdx.x];
    Scores scores = {};
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const auto [row, column] = elements[i];
      const bool is_top = column == top_column(row);
      set_half(scores[i / 2], i, numerics::float_to_half(is_top ? static_cast<float>(row) : -1.0f));
    }
    const std::uint32_t tops = block_tops(scores);
    for (const Element& element : elements) {
      const auto top = half_of(tops, element.row % 16 < 8 ? 0 : 1);
      ASSERT_EQ(numerics::half_to_float(top), static_cast<float>(element.row));
    }
  });
}

TEST(CuteSoftmax, RowsOfAccumulators) {
  const Fragment fragment = wgmma_f32_n136().sums;
  for (std::size_t thread = 0; thread < fragment.size(); ++thread) {
    const std::vector<Element>& elements = fragment[thread];
    ASSERT_EQ(elements.size(), std::size_t{kAccumulatorRegisters});
    float accumulator[kAccumulatorRegisters];
    std::fill(std::begin(accumulator), std::end(accumulator), 1.0f);
    scale_rows(accumulator, {.low = 2.0f, .high = 3.0f});
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const int low_row = static_cast<int>(16 * (thread / 32) + thread % 32 / 4);
      const bool is_high = accumulator[i] == 3.0f;
      ASSERT_EQ(elements[i].row, low_row + (is_high ? 8 : 0))
          << "value " << i << " of thread " << thread;
    }
    // Residual columns lie with the axes that they belong to, the column of ones behind them.
    for (int i = 0; i < 4; ++i) {
      const Element column = elements[kColumnRegisters + i];
      EXPECT_EQ(column.row, elements[i].row);
      EXPECT_EQ(column.column, numerics::kHeadDim + elements[i].column);
      const bool is_sum = i == kLowSum - kColumnRegisters || i == kHighSum - kColumnRegisters;
      EXPECT_EQ(column.column == kValueRows - 1, is_sum && thread % 4 == kSumLane);
    }
  }
}

}  // namespace
}  // namespace openvc::cute_oracle
