// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "gpu/attention_pair.hpp"
#include "schedule/mask.hpp"

// How far the Hopper kernel may be from the CPU backend on the same prepared bytes.
//
// The CPU rounds a score to binary16 once; the tensor core rounds it after every k-step. The two
// differ in the last bits, so that a few per cent of the probabilities take the neighbouring code,
// which is 2^(1/8), 9 %, away. Rows that average many keys hide these steps, rows with few keys
// show single ones. The bounds below count steps: of n probabilities a share `flipped` may differ,
// and three standard deviations and kFewFlips more.
namespace openvc::test {

struct Bounds {
  /// Share of the probabilities whose code may differ. On unit Gaussian inputs the measured
  /// distance of 0.4 to 1.6 % belongs to 0.2 to 3 %.
  double flipped = 0.05;
  /// Share of rows that need not agree: with scores of thousands of code units two keys can lie
  /// within one step of binary16, and the backends then disagree about the larger.
  double undecided_rows = 0.0;
  /// Nats, root mean square over the rows of a head. A single row, which may rest on one key, is
  /// allowed a code step more.
  double log_sum_exp = 0.02;
};

/// Every k-step is one more rounding of the scores to binary16.
inline constexpr Bounds kWithExtraSteps{.flipped = 0.08};

/// The FP8 accumulator truncates to 14 bits until it is promoted, after every key block: at most
/// the 0.05 to 0.2 % that were measured on sums of one sign over 256 keys.
inline constexpr double kAccumulation = 0.002;

inline constexpr double kCodeStep = 0.0905;     // 2^(1/8) - 1
inline constexpr double kCodeStepNats = 0.087;  // ln(2) / 8

/// Both results round to bfloat16 at worst, and a last bit apart becomes a step apart.
inline constexpr double kOutputRounding = 0.002;

/// Relative L2 distance that a share `flipped` of the probabilities, one code step off, may make.
inline double flip_bound(double probabilities, double flipped) {
  // Not all keys weigh the same: on unit Gaussian inputs, one in e counts.
  constexpr double kFewFlips = 9.0;
  const double expected = flipped * probabilities;
  // A block whose largest score lies next to a tie of its offset has all other codes one step off.
  constexpr double kFlippedBlocks = 0.03;
  constexpr double kFewBlocks = 1.0;
  const double blocks = kFlippedBlocks * probabilities / numerics::kKeyBlock;
  const double flips = expected + 3.0 * std::sqrt(expected) + kFewFlips +
                       numerics::kKeyBlock * (blocks + 3.0 * std::sqrt(blocks) + kFewBlocks);
  return std::hypot(kAccumulation, kOutputRounding,
                    kCodeStep * std::sqrt(std::min(flips / std::max(probabilities, 1.0), 9.0)));
}

/// Relative L2 distance of a row. A single wrong row hides in the distance of a long head.
inline double row_bound(double keys, double flipped) {
  constexpr double kRowsVary = 4.0;     // rows with longer queries have larger scores
  constexpr double kAllFlipped = 0.25;  // no row differs more, whatever the number of its keys
  return std::min(kRowsVary * flip_bound(keys, flipped), kAllFlipped);
}

inline double squared_norm(std::span<const float> x) {
  double sum = 0.0;
  for (const float value : x) sum += double{value} * double{value};
  return sum;
}

/// Infinite where a difference is not a number.
inline double squared_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = double{a[i]} - double{b[i]};
    sum += difference * difference;
  }
  return std::isnan(sum) ? std::numeric_limits<double>::infinity() : sum;
}

/// One row of [B][Sq][H][D].
inline std::span<const float> output_row(const schedule::Problem& p, const std::vector<float>& all,
                                         std::int64_t bh, std::int64_t query) {
  const std::int64_t row = (bh / p.heads * p.queries + query) * p.heads + bh % p.heads;
  const auto channels = static_cast<std::size_t>(p.head_dim);
  return std::span(all).subspan(static_cast<std::size_t>(row) * channels, channels);
}

/// Whether all elements of a head are finite; if not, both results must have the same ones so.
inline bool is_finite_head(const schedule::Problem& p, const std::vector<float>& all,
                           std::int64_t bh) {
  for (std::int64_t i = 0; i < p.queries; ++i) {
    for (const float x : output_row(p, all, bh, i)) {
      if (!numerics::is_finite(x)) return false;
    }
  }
  return true;
}

inline std::string finite_difference(const schedule::Problem& p, const std::vector<float>& actual,
                                     const std::vector<float>& expected, std::int64_t bh) {
  for (std::int64_t i = 0; i < p.queries; ++i) {
    const auto a = output_row(p, actual, bh, i);
    const auto e = output_row(p, expected, bh, i);
    for (std::size_t c = 0; c < a.size(); ++c) {
      if (numerics::is_finite(a[c]) != numerics::is_finite(e[c])) {
        return "head " + std::to_string(bh) + " row " + std::to_string(i) + " channel " +
               std::to_string(c) + ": " + std::to_string(a[c]) + ", expected " +
               std::to_string(e[c]);
      }
    }
  }
  return {};
}

/// Where two results are further apart than the bounds allow; empty if nowhere.
inline std::string disagreement(const schedule::Problem& p, const AttentionResult& actual,
                                const AttentionResult& expected, const Bounds& bounds = {}) {
  for (std::int64_t bh = 0; bh < p.batch_heads(); ++bh) {
    const std::string head = "head " + std::to_string(bh);
    if (!is_finite_head(p, expected.output, bh)) {
      const std::string difference = finite_difference(p, actual.output, expected.output, bh);
      if (!difference.empty()) return difference;
      continue;
    }
    double norm = 0.0;
    for (std::int64_t i = 0; i < p.queries; ++i) {
      norm += squared_norm(output_row(p, expected.output, bh, i));
    }
    const double mean_norm = norm / static_cast<double>(p.queries);
    double distance = 0.0;
    double probabilities = 0.0;
    std::int64_t undecided = 0;
    std::string first_undecided;
    for (std::int64_t i = 0; i < p.queries; ++i) {
      const auto row = output_row(p, actual.output, bh, i);
      const auto exact = output_row(p, expected.output, bh, i);
      const double row_distance = squared_distance(row, exact);
      const auto keys = static_cast<double>(schedule::visible_keys(p, i));
      // A row whose values cancel is compared with the head's usual row.
      const double row_norm = std::max(squared_norm(exact), 0.01 * mean_norm);
      const double bound = row_bound(keys, bounds.flipped);
      if (row_distance > bound * bound * row_norm) {
        if (undecided++ == 0) {
          first_undecided = head + " row " + std::to_string(i) + ": relative L2 " +
                            std::to_string(std::sqrt(row_distance / row_norm)) + ", bound " +
                            std::to_string(bound);
        }
      } else {
        distance += row_distance;
      }
      probabilities += keys;
    }
    if (static_cast<double>(undecided) > bounds.undecided_rows * static_cast<double>(p.queries)) {
      return std::to_string(undecided) + " of " + std::to_string(p.queries) +
             " rows too far; first " + first_undecided;
    }
    const double bound = flip_bound(probabilities, bounds.flipped);
    if (distance > bound * bound * norm) {
      return head + ": relative L2 " + std::to_string(std::sqrt(distance / norm)) + ", bound " +
             std::to_string(bound);
    }
    if (actual.log_sum_exp.empty() || expected.log_sum_exp.empty()) continue;
    double squares = 0.0;
    double expected_squares = 0.0;
    for (std::int64_t i = 0; i < p.queries; ++i) {
      const auto index = static_cast<std::size_t>(bh * p.queries + i);
      const float a = actual.log_sum_exp[index];
      const float e = expected.log_sum_exp[index];
      const auto keys = static_cast<double>(schedule::visible_keys(p, i));
      const double few_keys = kCodeStepNats * std::min(1.0, 3.0 / std::max(keys, 1.0));
      expected_squares += bounds.log_sum_exp * bounds.log_sum_exp + few_keys * few_keys;
      // One block of a head next to a tie of its offset: all but its largest score a step off.
      const double blocks = std::max(1.0, std::ceil(keys / numerics::kKeyBlock));
      const double one_block = i == 0 ? 1.5 * kCodeStepNats / blocks : 0.0;
      expected_squares += one_block * one_block;
      if (a == e) continue;  // minus infinity for a row without keys
      const double difference = std::fabs(double{a} - double{e});
      squares += difference * difference;
      if (!(difference <= bounds.log_sum_exp + kCodeStepNats)) {
        return head + " row " + std::to_string(i) + ": log-sum-exp " + std::to_string(a) +
               ", expected " + std::to_string(e);
      }
    }
    if (squares > expected_squares) {
      const auto rows = static_cast<double>(p.queries);
      return head + ": log-sum-exp " + std::to_string(std::sqrt(squares / rows)) +
             " apart (RMS), bound " + std::to_string(std::sqrt(expected_squares / rows));
    }
  }
  return {};
}

}  // namespace openvc::test
