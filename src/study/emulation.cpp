// SPDX-License-Identifier: BSD-3-Clause
#include "study/emulation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "numerics/contract.hpp"
#include "numerics/e4m3.hpp"
#include "numerics/half.hpp"
#include "numerics/score_scale.hpp"
#include "schedule/mask.hpp"
#include "study/matrix_product.hpp"

namespace openvc::study {
namespace {

using numerics::kE4m3CodesPerOctave;
using numerics::kHeadDim;
using numerics::kKeyBlock;

/// The smallest code of a normal number.
constexpr std::uint8_t kFirstNormalCode = 8;

std::size_t area(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns);
}

double exp2_of_code_units(double x) { return std::exp2(x / kE4m3CodesPerOctave); }

float round_to_half(double x) {
  return numerics::half_to_float(numerics::float_to_half(static_cast<float>(x)));
}

/// Weight, relative to a score of `reference`, that E4M3's peak stands for.
double peak_weight(double top, double reference) { return exp2_of_code_units(top - reference); }

/// Anchored ExpCast of one row's scores of one block, relative to the block's largest score: bytes,
/// and what they stand for.
class BlockOfRow {
 public:
  /// `scores`: code units, of the keys that the row sees.
  BlockOfRow(std::span<const double> scores, const numerics::HeadRule& rule)
      : scores_(scores), rule_(rule), unit_(std::ldexp(1.0, rule.score_exponent)) {
    float top = numerics::kLeastTop;
    for (const double score : scores) top = std::max(top, static_cast<float>(score / unit_));
    numerics::RowState row = numerics::empty_row(rule);
    block_ = numerics::begin_block(row, top, rule);
  }

  /// Code units.
  [[nodiscard]] double top() const { return block_.top * unit_; }
  [[nodiscard]] std::uint8_t code(std::size_t key) const {
    return numerics::probability_code(static_cast<float>(scores_[key] / unit_), block_, rule_);
  }

 private:
  std::span<const double> scores_;
  const numerics::HeadRule& rule_;
  double unit_;
  numerics::BlockCast block_;
};

/// Weight that a score has relative to the reference of its row if nothing is rounded, in the scale
/// of the coded weights.
double uncoded_weight(double score, double reference) {
  return double{numerics::kE4m3Max} * peak_weight(score, reference);
}

/// row = row times a basis [axis][channel].
void leave_axes(const float* basis, double* row) {
  std::array<double, kHeadDim> channels{};
  for (std::size_t j = 0; j < kHeadDim; ++j) {
    for (std::size_t c = 0; c < kHeadDim; ++c) channels[c] += row[j] * basis[j * kHeadDim + c];
  }
  std::copy_n(channels.data(), kHeadDim, row);
}

}  // namespace

Scores exact_scores(std::span<const std::int64_t> rows, const float* queries,
                    std::int64_t key_count, const float* keys, double softmax_scale) {
  Scores scores{rows, key_count, {}};
  scores.values.resize(area(scores.row_count(), key_count));
  dot_products(queries, scores.row_count(), keys, key_count, kHeadDim, scores.values.data());
  const double gain = numerics::kExactCodeUnitsPerNat * softmax_scale;
  for (double& score : scores.values) score *= gain;
  return scores;
}

Scores quantized_scores(std::span<const std::int64_t> rows, std::int64_t first_row,
                        const DecodedHead& head) {
  const auto key_count = static_cast<std::int64_t>(head.values.size()) / kHeadDim;
  Scores scores{rows, key_count, {}};
  scores.values.resize(area(scores.row_count(), key_count));
  dot_products(head.queries.data() + first_row * head.columns, scores.row_count(), head.keys.data(),
               key_count, head.columns, scores.values.data());
  const double unit = std::ldexp(1.0, head.rule.score_exponent);
  for (double& score : scores.values) score = round_to_half(score) * unit;
  return scores;
}

Weights softmax_weights(const Scores& scores, const schedule::Problem& problem) {
  Weights weights{scores.keys, std::vector<double>(scores.values.size()),
                  std::vector<double>(scores.rows.size())};
  for (std::size_t r = 0; r < scores.rows.size(); ++r) {
    const double* row = scores.values.data() + area(static_cast<std::int64_t>(r), scores.keys);
    double* out = weights.values.data() + area(static_cast<std::int64_t>(r), scores.keys);
    const std::int64_t visible = schedule::visible_keys(problem, scores.rows[r]);
    if (visible == 0) continue;
    const double row_max = *std::max_element(row, row + visible);
    double sum = 0.0;
    for (std::int64_t j = 0; j < visible; ++j) {
      out[j] = exp2_of_code_units(row[j] - row_max);
      sum += out[j];
    }
    weights.sums[r] = sum;
  }
  return weights;
}

CastWeights cast_weights(const Scores& scores, const schedule::Problem& problem,
                         const numerics::HeadRule& rule) {
  CastWeights cast{{scores.keys, std::vector<double>(scores.values.size()),
                    std::vector<double>(scores.rows.size())},
                   std::vector<std::uint8_t>(scores.values.size()),
                   std::vector<double>(scores.rows.size())};
  for (std::size_t r = 0; r < scores.rows.size(); ++r) {
    const std::size_t start = area(static_cast<std::int64_t>(r), scores.keys);
    const auto visible = static_cast<std::size_t>(schedule::visible_keys(problem, scores.rows[r]));
    const std::span row(scores.values.data() + start, visible);
    if (visible > 0) cast.references[r] = *std::ranges::max_element(row);
    for (std::size_t first = 0; first < visible; first += kKeyBlock) {
      const BlockOfRow block(row.subspan(first, std::min<std::size_t>(kKeyBlock, visible - first)),
                             rule);
      const double weight = peak_weight(block.top(), cast.references[r]);
      for (std::size_t j = first; j < std::min(first + kKeyBlock, visible); ++j) {
        const std::uint8_t code = block.code(j - first);
        cast.codes[start + j] = code;
        cast.weights.values[start + j] = weight * double{numerics::kE4m3Values[code]};
        cast.weights.sums[r] += cast.weights.values[start + j];
      }
    }
  }
  return cast;
}

Weights partly_cast_weights(const CastWeights& cast, const Scores& scores,
                            const schedule::Problem& problem, CastPart part) {
  Weights mixed{scores.keys, std::vector<double>(scores.values.size()),
                std::vector<double>(scores.rows.size())};
  for (std::size_t r = 0; r < scores.rows.size(); ++r) {
    const std::size_t start = area(static_cast<std::int64_t>(r), scores.keys);
    const std::int64_t visible = schedule::visible_keys(problem, scores.rows[r]);
    double sum = 0.0;
    for (std::size_t j = start; j < start + static_cast<std::size_t>(visible); ++j) {
      const bool is_normal = cast.codes[j] >= kFirstNormalCode;
      mixed.values[j] = is_normal == (part == CastPart::normal)
                            ? cast.weights.values[j]
                            : uncoded_weight(scores.values[j], cast.references[r]);
      sum += mixed.values[j];
    }
    mixed.sums[r] = sum;
  }
  return mixed;
}

std::vector<double> flushed_mass(const Weights& exact, const CastWeights& cast) {
  std::vector<double> flushed(exact.sums.size());
  for (std::size_t r = 0; r < flushed.size(); ++r) {
    const std::size_t start = area(static_cast<std::int64_t>(r), exact.keys);
    for (std::size_t j = start; j < start + static_cast<std::size_t>(exact.keys); ++j) {
      if (cast.codes[j] == 0) flushed[r] += exact.values[j];
    }
    if (exact.sums[r] > 0.0) flushed[r] /= exact.sums[r];
  }
  return flushed;
}

std::vector<double> average_values(const Weights& weights, const float* values) {
  std::vector<double> averages(area(weights.row_count(), kHeadDim));
  add_weighted_sums(weights.values.data(), weights.row_count(), weights.keys, values, kHeadDim,
                    averages.data());
  for (std::int64_t r = 0; r < weights.row_count(); ++r) {
    const double sum = weights.sums[static_cast<std::size_t>(r)];
    const double share = sum > 0.0 ? 1.0 / sum : 0.0;
    for (std::int64_t c = 0; c < kHeadDim; ++c)
      averages[area(r, kHeadDim) + static_cast<std::size_t>(c)] *= share;
  }
  return averages;
}

std::vector<double> average_quantized_values(const Weights& weights, const DecodedHead& head) {
  std::vector<double> averages = average_values(weights, head.values.data());
  for (std::int64_t r = 0; r < weights.row_count(); ++r) {
    if (weights.sums[static_cast<std::size_t>(r)] == 0.0) continue;
    double* row = averages.data() + r * kHeadDim;
    for (std::size_t c = 0; c < kHeadDim; ++c) row[c] *= head.value_scales[c];
    if (!head.value_basis.empty()) leave_axes(head.value_basis.data(), row);
    for (std::size_t c = 0; c < kHeadDim; ++c) row[c] += head.value_means[c];
  }
  return averages;
}

void add_repair(const CastWeights& cast, std::int64_t first_row, const DecodedHead& head,
                const RepairRows& repair, std::vector<double>& averages) {
  if (repair.count == 0) return;
  const std::int64_t rows = cast.weights.row_count();
  std::vector<double> weights(area(rows, repair.count));
  dot_products(head.queries.data() + first_row * head.columns, rows, repair.keys.data(),
               repair.count, head.columns, weights.data());
  const double unit = std::ldexp(1.0, head.rule.score_exponent);
  for (double& weight : weights) weight = round_to_half(weight) * unit;
  const auto count = static_cast<std::size_t>(repair.count);
  for (std::size_t r = 0; r < cast.references.size(); ++r) {
    const double share = cast.weights.sums[r] > 0.0 ? 1.0 / cast.weights.sums[r] : 0.0;
    for (std::size_t first = 0; first < count; first += kKeyBlock) {
      const std::span scores(weights.data() + r * count + first,
                             std::min<std::size_t>(kKeyBlock, count - first));
      const BlockOfRow block(scores, head.rule);
      const double weight = peak_weight(block.top(), cast.references[r]) * share;
      std::vector<double> shares(scores.size());
      for (std::size_t j = 0; j < scores.size(); ++j) {
        shares[j] = weight * double{numerics::kE4m3Values[block.code(j)]};
      }
      std::ranges::copy(shares, scores.begin());
    }
  }
  std::vector<double> sums(averages.size());
  add_weighted_sums(weights.data(), rows, repair.count, repair.values.data(), kHeadDim,
                    sums.data());
  for (std::size_t i = 0; i < averages.size(); ++i) {
    averages[i] += sums[i] * head.value_scales[i % kHeadDim];
  }
}

}  // namespace openvc::study
