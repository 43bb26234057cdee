// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/agreement.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"
#include "schedule/mask.hpp"

namespace openvc::cpu {
namespace {

/// Relative L2 distance that a share `flipped` of the probabilities, one code step off, may make.
double flip_bound(double probabilities, double flipped) {
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
double row_bound(double keys, double flipped) {
  constexpr double kRowsVary = 4.0;     // rows with longer queries have larger scores
  constexpr double kAllFlipped = 0.25;  // no row differs more, whatever the number of its keys
  return std::min(kRowsVary * flip_bound(keys, flipped), kAllFlipped);
}

/// Infinite where a difference is not a number.
double squared_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = double{a[i]} - double{b[i]};
    sum += difference * difference;
  }
  return std::isnan(sum) ? std::numeric_limits<double>::infinity() : sum;
}

/// Whether all elements of a head are finite; if not, both results must have the same ones so.
bool is_finite_head(const schedule::Problem& p, const std::vector<float>& all, std::int64_t bh) {
  for (std::int64_t i = 0; i < p.queries; ++i) {
    for (const float x : output_row(p, all, bh, i)) {
      if (!numerics::is_finite(x)) return false;
    }
  }
  return true;
}

std::string finite_difference(const schedule::Problem& p, const std::vector<float>& actual,
                              const std::vector<float>& expected, std::int64_t bh) {
  for (std::int64_t i = 0; i < p.queries; ++i) {
    const auto a = output_row(p, actual, bh, i);
    const auto e = output_row(p, expected, bh, i);
    for (std::size_t c = 0; c < a.size(); ++c) {
      if (numerics::is_finite(a[c]) != numerics::is_finite(e[c])) {
        return "row " + std::to_string(i) + " channel " + std::to_string(c) + ": " +
               std::to_string(a[c]) + ", expected " + std::to_string(e[c]);
      }
    }
  }
  return {};
}

/// How far two results of a head are apart in a row, and how far they may be.
struct RowDistance {
  double relative = 0.0;  // L2
  double bound = 0.0;

  [[nodiscard]] double share() const { return relative / bound; }
};

std::string output_disagreement(const schedule::Problem& p, const AttentionResult& actual,
                                const AttentionResult& expected, std::int64_t bh,
                                const Bounds& bounds) {
  double norm = 0.0;
  for (std::int64_t i = 0; i < p.queries; ++i) {
    norm += squared_norm(output_row(p, expected.output, bh, i));
  }
  const double mean_norm = norm / static_cast<double>(p.queries);
  double distance = 0.0;
  double probabilities = 0.0;
  std::int64_t undecided = 0;
  RowDistance worst{.relative = 0.0, .bound = 1.0};
  std::int64_t worst_row = 0;
  for (std::int64_t i = 0; i < p.queries; ++i) {
    const auto exact = output_row(p, expected.output, bh, i);
    const double row_distance = squared_distance(output_row(p, actual.output, bh, i), exact);
    const auto keys = static_cast<double>(schedule::visible_keys(p, i));
    // A row whose values cancel is compared with the head's usual row.
    const double row_norm = std::max(squared_norm(exact), 0.01 * mean_norm);
    const double bound = row_bound(keys, bounds.flipped);
    probabilities += keys;
    if (row_distance <= bound * bound * row_norm) {
      distance += row_distance;
      continue;
    }
    ++undecided;
    const RowDistance row{.relative = std::sqrt(row_distance / row_norm), .bound = bound};
    if (row.share() > worst.share()) {
      worst = row;
      worst_row = i;
    }
  }
  if (static_cast<double>(undecided) > bounds.undecided_rows * static_cast<double>(p.queries)) {
    return std::to_string(undecided) + " of " + std::to_string(p.queries) +
           " rows too far; worst row " + std::to_string(worst_row) + ": relative L2 " +
           std::to_string(worst.relative) + ", bound " + std::to_string(worst.bound);
  }
  const double bound = flip_bound(probabilities, bounds.flipped);
  if (distance <= bound * bound * norm) return {};
  return "relative L2 " + std::to_string(std::sqrt(distance / norm)) + ", bound " +
         std::to_string(bound);
}

std::string log_sum_exp_disagreement(const schedule::Problem& p, const AttentionResult& actual,
                                     const AttentionResult& expected, std::int64_t bh,
                                     const Bounds& bounds) {
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
      return "row " + std::to_string(i) + ": log-sum-exp " + std::to_string(a) + ", expected " +
             std::to_string(e);
    }
  }
  if (squares > expected_squares) {
    const auto rows = static_cast<double>(p.queries);
    return "log-sum-exp " + std::to_string(std::sqrt(squares / rows)) + " apart (RMS), bound " +
           std::to_string(std::sqrt(expected_squares / rows));
  }
  return {};
}

}  // namespace

std::span<const float> output_row(const schedule::Problem& p, const std::vector<float>& all,
                                  std::int64_t bh, std::int64_t query) {
  const std::int64_t row = (bh / p.heads * p.queries + query) * p.heads + bh % p.heads;
  const auto channels = static_cast<std::size_t>(p.head_dim);
  return std::span(all).subspan(static_cast<std::size_t>(row) * channels, channels);
}

double squared_norm(std::span<const float> x) {
  double sum = 0.0;
  for (const float value : x) sum += double{value} * double{value};
  return sum;
}

std::string head_disagreement(const schedule::Problem& p, const AttentionResult& actual,
                              const AttentionResult& expected, std::int64_t bh,
                              const Bounds& bounds) {
  const auto of_head = [bh](const std::string& found) {
    return found.empty() ? found : "head " + std::to_string(bh) + ": " + found;
  };
  if (!is_finite_head(p, expected.output, bh)) {
    return of_head(finite_difference(p, actual.output, expected.output, bh));
  }
  const std::string found = output_disagreement(p, actual, expected, bh, bounds);
  if (!found.empty() || actual.log_sum_exp.empty() || expected.log_sum_exp.empty()) {
    return of_head(found);
  }
  return of_head(log_sum_exp_disagreement(p, actual, expected, bh, bounds));
}

std::string disagreement(const schedule::Problem& p, const AttentionResult& actual,
                         const AttentionResult& expected, const Bounds& bounds) {
  for (std::int64_t bh = 0; bh < p.batch_heads(); ++bh) {
    std::string found = head_disagreement(p, actual, expected, bh, bounds);
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace openvc::cpu
