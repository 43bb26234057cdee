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
  return {{"plain", numerics::head_rule(0, false)},
          {"tail", numerics::head_rule(0, true)},
          {"large_logits_1", numerics::head_rule(1, false)},
          {"large_logits_7_tail", numerics::head_rule(7, true)},
          {"large_logits_31", numerics::head_rule(31, false)}};
}

inline constexpr int kSweepRows = 64;
inline constexpr int kSweepTiles = 48;

/// Binary16 scores [tile][row][key]: flat rows to rows of hundreds of nats, from far below zero to
/// far above, masked keys, and rows whose first tile has no key at all.
inline std::vector<std::uint16_t> sweep_scores() {
  constexpr float kSpreads[] = {0.3f, 12.0f, 60.0f, 900.0f};
  constexpr float kCentres[] = {0.0f, -500.0f, 700.0f, -20'000.0f, 30'000.0f};
  constexpr float kLimit = 60'000.0f;
  test::Random random(2026);
  std::vector<std::uint16_t> scores(std::size_t{kSweepTiles} * kSweepRows * numerics::kKeyBlock);
  std::size_t at = 0;
  for (int tile = 0; tile < kSweepTiles; ++tile) {
    for (int row = 0; row < kSweepRows; ++row) {
      const float spread = kSpreads[row % 4];
      const float centre = kCentres[row % 5];
      for (int key = 0; key < numerics::kKeyBlock; ++key) {
        const float x = numerics::saturate(centre + spread * random.normal(), kLimit);
        const bool masked = random.next() % 50 == 0 || (tile == 0 && row % 7 == 0);
        scores[at++] = masked ? numerics::kHalfNegativeInfinity : numerics::float_to_half(x);
      }
    }
  }
  return scores;
}

/// Adds what is equal on every backend of a row's state: its maximum, and its offset once it has a
/// key.
inline void add_row(Hash& hash, float row_max, float offset) {
  hash.value(row_max).value(row_max == -numerics::infinity() ? 0.0f : offset);
}

}  // namespace openvc::golden
