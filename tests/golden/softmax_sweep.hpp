// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "golden/golden_file.hpp"
#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "numerics/half.hpp"
#include "numerics/head_rule.hpp"
#include "unit/cpu/test_tensor.hpp"

// Score tiles whose probability bytes and row states are golden.
namespace openvc::golden {

struct SoftmaxCase {
  std::string name;
  numerics::HeadRule rule;
};

inline std::vector<SoftmaxCase> softmax_cases() {
  return {{"narrow", numerics::head_rule(0, false)},
          {"wide_0", numerics::head_rule(0, true)},
          {"wide_1", numerics::head_rule(1, true)},
          {"wide_7", numerics::head_rule(7, true)},
          {"wide_31", numerics::head_rule(31, true)}};
}

inline constexpr int kSweepRows = 64;
inline constexpr int kSweepTiles = 48;

/// Binary16 scores [tile][row][key]: flat rows to rows of hundreds of nats, from far below zero to
/// far above, masked keys, and rows whose first tile has no key at all. Scores of narrow heads stay
/// a little beyond what a plan allows (plan_scores.hpp); those of wide heads fill binary16.
inline std::vector<std::uint16_t> sweep_scores(const numerics::HeadRule& rule) {
  struct Distribution {
    float spreads[4];
    float centres[5];
    float limit;
  };
  constexpr Distribution kNarrow{
      {0.3f, 12.0f, 60.0f, 300.0f}, {0.0f, -300.0f, 400.0f, -600.0f, 600.0f}, 680.0f};
  constexpr Distribution kWide{
      {0.3f, 12.0f, 60.0f, 900.0f}, {0.0f, -500.0f, 700.0f, -20'000.0f, 30'000.0f}, 60'000.0f};
  const Distribution& d = rule.wide() ? kWide : kNarrow;
  test::Random random(2026);
  std::vector<std::uint16_t> scores(std::size_t{kSweepTiles} * kSweepRows * numerics::kKeyBlock);
  std::size_t at = 0;
  for (int tile = 0; tile < kSweepTiles; ++tile) {
    for (int row = 0; row < kSweepRows; ++row) {
      const float spread = d.spreads[row % 4];
      const float centre = d.centres[row % 5];
      for (int key = 0; key < numerics::kKeyBlock; ++key) {
        const float x = numerics::saturate(centre + spread * random.normal(), d.limit);
        const bool masked = random.next() % 50 == 0 || (tile == 0 && row % 7 == 0);
        scores[at++] = masked ? numerics::kHalfNegativeInfinity : numerics::float_to_half(x);
      }
    }
  }
  return scores;
}

/// Adds what is equal on every backend of a block of one row: its top, its offset (of narrow heads)
/// and the reference of the row. Weights are not: processors differ in 2^x.
inline void add_block(Hash& hash, float top, float offset, float reference) {
  hash.value(top + 0.0f).value(offset).value(reference + 0.0f);  // + 0: -0 counts as 0
}

}  // namespace openvc::golden
