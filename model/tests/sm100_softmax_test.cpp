// SPDX-License-Identifier: BSD-3-Clause
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/sm100/softmax.cuh"
#include "numerics/online_softmax.hpp"

// The softmax step of the Blackwell kernel against the contract: tops, codes and weights of rows of
// scores, as tests/gpu/sm90_softmax_test.cu does it on a GPU. A thread has a whole row, so that a
// row is all it takes.
namespace openvc::cuda::sm100 {
namespace {

constexpr int kKeys = numerics::kKeyBlock;
using Row = std::array<std::uint16_t, kKeys>;
constexpr auto kMasked = numerics::kHalfNegativeInfinity;

/// Two neighbouring keys a register.
void load(Scores& registers, const Row& row) {
  for (int i = 0; i < kScoreRegisters; ++i) {
    registers[i] = row[2 * i] | static_cast<std::uint32_t>(row[2 * i + 1]) << 16;
  }
}

float contract_top(const Row& row) {
  float top = numerics::kLeastTop;
  for (const std::uint16_t score : row) {
    const float x = numerics::half_to_float(score);
    if (x > top) top = x;  // no NaN is; std::fmax() passes those that signal
  }
  return top;
}

/// Empty, or in what the kernel and the contract differ.
template <ExpCastPath kPath>
std::string difference(const Row& row, const numerics::HeadRule& head) {
  Scores scores;
  load(scores, row);
  const std::uint32_t top = block_top(scores);
  Probabilities parts[2];
  exp_cast<kPath, 0>(scores, parts[0], top, head);
  exp_cast<kPath, 1>(scores, parts[1], top, head);

  numerics::RowState state = numerics::empty_row(head);
  const numerics::BlockCast block = numerics::begin_block(state, contract_top(row), head);
  const std::uint32_t expected_top = numerics::float_to_half(block.top) * kOneCode;
  if (top != expected_top) return "top " + std::to_string(top);
  for (int key = 0; key < kKeys; ++key) {
    const auto slot = static_cast<std::uint32_t>(numerics::slot_of_key(key));
    constexpr std::uint32_t kPartSlots = kKeys / 2;
    const std::uint32_t four = parts[slot / kPartSlots][slot % kPartSlots / 4];
    const auto code = static_cast<std::uint8_t>(four >> slot % 4 * 8);
    const float score = numerics::half_to_float(row[static_cast<std::size_t>(key)]);
    const std::uint8_t expected = numerics::probability_code(score, block, head);
    if (code != expected) {
      return "key " + std::to_string(key) + ", score " + std::to_string(score) + ", top " +
             std::to_string(block.top) + ": code " + std::to_string(code) + "; expected " +
             std::to_string(expected);
    }
  }
  return {};
}

std::string difference(const Row& row, const numerics::HeadRule& head) {
  return head.wide() ? difference<ExpCastPath::wide>(row, head)
                     : difference<ExpCastPath::narrow>(row, head);
}

struct Rule {
  std::string name;
  numerics::HeadRule head;
  float limit;  // of finite scores: those of narrow heads stay a little beyond what a plan allows
};

class ModelBlackwellSoftmax : public testing::TestWithParam<Rule> {};

INSTANTIATE_TEST_SUITE_P(Rules, ModelBlackwellSoftmax,
                         testing::Values(Rule{"narrow", numerics::head_rule(0, false), 700.0f},
                                         Rule{"wide0", numerics::head_rule(0, true), 65504.0f},
                                         Rule{"wide1", numerics::head_rule(1, true), 65504.0f},
                                         Rule{"wide7", numerics::head_rule(7, true), 65504.0f},
                                         Rule{"wide31", numerics::head_rule(31, true), 65504.0f}),
                         [](const auto& rule) { return rule.param.name; });

/// Every score of binary16 up to the largest of its row, NaN and -inf among them: sums and
/// differences at every 1/2 that is rounded, too.
TEST_P(ModelBlackwellSoftmax, CodesOfEveryScoreEqualTheContract) {
  const auto& [name, head, limit] = GetParam();
  constexpr float kTops[] = {-65504.0f, -700.0f, -126.0f, -0.5f,   -0x1p-24f, 0.0f,
                             0x1p-24f,  0.25f,   0.5f,    1.5f,    62.75f,    126.0f,
                             300.5f,    699.5f,  2049.0f, 4098.0f, 30000.0f,  65504.0f};
  for (const float top : kTops) {
    if (std::fabs(top) > limit) continue;
    Row row;
    std::size_t filled = 0;
    int place = 0;  // of the largest: a different one in every row
    const auto check = [&] {
      row.at(filled) = row.at(static_cast<std::size_t>(place) % (filled + 1));
      row.at(static_cast<std::size_t>(place++) % (filled + 1)) = numerics::float_to_half(top);
      std::fill(row.begin() + static_cast<std::ptrdiff_t>(filled) + 1, row.end(), kMasked);
      ASSERT_EQ(difference(row, head), "") << "top " << top;
      filled = 0;
    };
    for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
      const float score = numerics::half_to_float(static_cast<std::uint16_t>(bits));
      if (score > top) continue;
      if (std::isfinite(score) && std::fabs(score) > limit) continue;
      row.at(filled++) = static_cast<std::uint16_t>(bits);
      if (filled + 1 == row.size()) check();
      if (HasFatalFailure()) return;
    }
    check();
  }
}

TEST_P(ModelBlackwellSoftmax, RowsWithoutKeys) {
  Row row;
  for (const std::uint16_t score : {kMasked, std::uint16_t{0x7E00}, std::uint16_t{0xFE00}}) {
    row.fill(score);
    EXPECT_EQ(difference(row, GetParam().head), "");
    row.back() = kMasked;
    EXPECT_EQ(difference(row, GetParam().head), "");
  }
}

/// The top is found wherever it is.
TEST(ModelBlackwellTop, OfEveryKey) {
  for (std::size_t key = 0; key < kKeys; ++key) {
    Row row;
    row.fill(kMasked);
    row.at(key) = numerics::float_to_half(-3.5f);
    Scores scores;
    load(scores, row);
    EXPECT_EQ(block_top(scores), numerics::float_to_half(-3.5f) * kOneCode) << "key " << key;
  }
}

TEST(ModelBlackwellMask, HidesKeysAtAndBeyondTheLimit) {
  Row row;
  for (std::size_t i = 0; i < row.size(); ++i) row.at(i) = static_cast<std::uint16_t>(521 * i);
  for (int limit = -130; limit <= kKeys; ++limit) {
    Scores scores;
    load(scores, row);
    mask_scores(scores, limit);
    for (int key = 0; key < kKeys; ++key) {
      const auto found = static_cast<std::uint16_t>(scores[key / 2] >> key % 2 * 16);
      ASSERT_EQ(found, key < limit ? row.at(static_cast<std::size_t>(key)) : kMasked)
          << "limit " << limit << ", key " << key;
    }
  }
}

}  // namespace
}  // namespace openvc::cuda::sm100
