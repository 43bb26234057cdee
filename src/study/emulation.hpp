// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "numerics/online_softmax.hpp"
#include "schedule/problem.hpp"
#include "study/prepared_head.hpp"

// The stages of attention in float64, each either exact or as the contract has it. A stage works on
// a few queries and all keys at once.
namespace openvc::study {

/// Scores in code units (1/8 octave), [rows][keys]. Those of masked keys are not used.
struct Scores {
  std::span<const std::int64_t> rows;  // positions of the queries
  std::int64_t keys = 0;
  std::vector<double> values;

  [[nodiscard]] std::int64_t row_count() const { return static_cast<std::int64_t>(rows.size()); }
};

/// Unnormalised softmax weights, [rows][keys], and their sums.
struct Weights {
  std::int64_t keys = 0;
  std::vector<double> values;
  std::vector<double> sums;

  [[nodiscard]] std::int64_t row_count() const { return static_cast<std::int64_t>(sums.size()); }
};

/// Weights by ExpCast, relative to the largest score of each row, and the bytes behind them.
struct CastWeights {
  Weights weights;
  std::vector<std::uint8_t> codes;  // [rows][keys], relative to the largest score of their block
  std::vector<double> references;   // [rows]: largest score, code units
};

/// Scores of the input tensors. `queries` and `keys` hold the rows that take part, as binary32.
[[nodiscard]] Scores exact_scores(std::span<const std::int64_t> rows, const float* queries,
                                  std::int64_t key_count, const float* keys, double softmax_scale);

/// Scores of the quantised head, rounded to binary16 as every backend does. `first_row` is the
/// position of rows[0] among the rows that the head was decoded for.
[[nodiscard]] Scores quantized_scores(std::span<const std::int64_t> rows, std::int64_t first_row,
                                      const DecodedHead& head);

[[nodiscard]] Weights softmax_weights(const Scores& scores, const schedule::Problem& problem);

/// Anchored ExpCast, block by block.
[[nodiscard]] CastWeights cast_weights(const Scores& scores, const schedule::Problem& problem,
                                       const numerics::HeadRule& rule);

/// Which of the keys keep ExpCast's weight; the others get the exact weight.
enum class CastPart : std::uint8_t {
  normal,  ///< codes of normal numbers: rounding to 1/8 octave
  tail,    ///< codes of subnormal numbers and zero: underestimated or flushed
};
[[nodiscard]] Weights partly_cast_weights(const CastWeights& cast, const Scores& scores,
                                          const schedule::Problem& problem, CastPart part);

/// Share of the exact weight of each row that ExpCast flushes to zero.
[[nodiscard]] std::vector<double> flushed_mass(const Weights& exact, const CastWeights& cast);

/// Averages of V, [rows][kHeadDim]; zero for rows without keys. `values` is [keys][kHeadDim].
[[nodiscard]] std::vector<double> average_values(const Weights& weights, const float* values);

/// The same for quantised V, whose averages are still to be scaled and shifted.
[[nodiscard]] std::vector<double> average_quantized_values(const Weights& weights,
                                                           const DecodedHead& head);

/// Adds what repair rows contribute to `averages` of the quantised head.
void add_repair(const CastWeights& cast, std::int64_t first_row, const DecodedHead& head,
                const RepairRows& repair, std::vector<double>& averages);

}  // namespace openvc::study
