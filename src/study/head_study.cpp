// SPDX-License-Identifier: BSD-3-Clause
#include "study/head_study.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

#include "numerics/repair.hpp"
#include "schedule/mask.hpp"
#include "study/int8_scores.hpp"
#include "study/reference_numerics.hpp"
#include "study/tensors.hpp"

namespace openvc::study {
namespace {

using numerics::kHeadDim;

/// Sampled queries whose scores are in memory at once, per thread.
constexpr std::int64_t kTileRows = 32;

// Work is counted in products of a query and a key. A tile takes two products with K and seven with
// V; the backend's are much cheaper than those in float64.
constexpr double kTilePasses = 9.0;
constexpr double kVariantPasses = 2.0;
constexpr double kBackendSpeedup = 8.0;

// Passes over the sampled rows that every study makes: its tiles, the reference numerics, INT8.
constexpr double kPasses =
    kTilePasses + kVariantPasses * (1.0 + static_cast<double>(kInt8Forms.size()));

std::vector<float> load_rows(const TensorView& tensor, std::span<const std::int64_t> rows) {
  std::vector<float> values(rows.size() * kHeadDim);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    load_row(tensor, 0, rows[i], 0, {values.data() + i * kHeadDim, kHeadDim});
  }
  return values;
}

std::vector<float> load_all_rows(const TensorView& tensor) {
  const std::int64_t tokens = tensor.shape[kSequence];
  std::vector<float> values(static_cast<std::size_t>(tokens * kHeadDim));
  for (std::int64_t s = 0; s < tokens; ++s) {
    load_row(tensor, 0, s, 0, {values.data() + s * kHeadDim, kHeadDim});
  }
  return values;
}

/// Variance of the difference of two score rows about its mean, which the softmax does not see.
double score_error_variance(const double* scores, const double* exact, std::int64_t count) {
  double sum = 0.0;
  double squares = 0.0;
  for (std::int64_t j = 0; j < count; ++j) {
    const double difference = scores[j] - exact[j];
    sum += difference;
    squares += difference * difference;
  }
  const double mean = sum / static_cast<double>(count);
  return std::max(0.0, squares / static_cast<double>(count) - mean * mean);
}

std::vector<double> round_to_type(std::span<const double> values, ElementType type) {
  std::vector<double> rounded(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    float stored = 0.0f;
    store_element(&stored, type, 0, static_cast<float>(values[i]));
    rounded[i] = load_element(&stored, type, 0);
  }
  return rounded;
}

std::vector<double> row_errors(std::span<const double> output, std::span<const double> exact) {
  std::vector<double> errors;
  for (std::size_t i = 0; i < exact.size(); i += kHeadDim) {
    errors.push_back(
        measure_error(output.subspan(i, kHeadDim), exact.subspan(i, kHeadDim)).relative_l2());
  }
  return errors;
}

}  // namespace

struct HeadStudy::RepairSet {
  double budget = 0.0;
  RepairRows rows;
  std::optional<DecodedHead> without_axes;  // where V is on axes, which repair excludes
};

/// Measures of a few rows, to be merged in their order.
struct HeadStudy::TileResult {
  SourceErrors sources;  // flushed_mass is a sum over rows
  double score_variance = 0.0;
  std::int64_t rows_with_keys = 0;
  std::vector<BudgetErrors> budgets;
};

HeadStudy::HeadStudy(const HeadInputs& inputs, std::span<const std::int64_t> rows,
                     const NumericOptions& numerics, cpu::ThreadPool& pool,
                     ProgressTracker& tracker)
    : inputs_(inputs),
      rows_(rows),
      numerics_(numerics),
      pool_(pool),
      tracker_(tracker),
      queries_(load_rows(inputs.q, rows)),
      keys_(load_all_rows(inputs.k)),
      values_(load_all_rows(inputs.v)),
      prepared_(inputs, numerics, 0, pool),
      decoded_(prepared_.decode(rows)),
      exact_(rows.size() * kHeadDim),
      emulated_(rows.size() * kHeadDim) {}

double HeadStudy::work(std::int64_t queries, std::int64_t keys, std::int64_t rows,
                       bool run_backend) {
  const auto sampled = static_cast<double>(rows);
  const double backend =
      run_backend ? kVariantPasses * static_cast<double>(queries) / kBackendSpeedup : 0.0;
  return static_cast<double>(keys) * (kPasses * sampled + backend);
}

double HeadStudy::variant_work(std::int64_t keys, std::int64_t rows) {
  return kVariantPasses * static_cast<double>(rows) * static_cast<double>(keys);
}

std::int64_t HeadStudy::tile_count() const { return (row_count() + kTileRows - 1) / kTileRows; }

std::span<const double> HeadStudy::exact_tile(std::int64_t first, std::int64_t count) const {
  return std::span(exact_).subspan(static_cast<std::size_t>(first * kHeadDim),
                                   static_cast<std::size_t>(count * kHeadDim));
}

std::vector<HeadStudy::RepairSet> HeadStudy::prepare_repairs(
    std::span<const double> budgets) const {
  std::vector<RepairSet> sets;
  for (const double budget : budgets) {
    RepairSet set;
    set.budget = budget;
    const std::int64_t tokens =
        numerics::repair_row_count(budget, static_cast<std::int64_t>(values_.size()) / kHeadDim);
    if (tokens > 0) {
      const PreparedHead prepared(inputs_, numerics_, tokens, pool_);
      set.rows = prepared.decode_repair();
      if (decoded_.rule.values_on_axes()) set.without_axes = prepared.decode(rows_);
    }
    sets.push_back(std::move(set));
  }
  return sets;
}

HeadStudy::TileResult HeadStudy::study_tile(std::int64_t first, std::int64_t count,
                                            std::span<const RepairSet> repairs) {
  const schedule::Problem& problem = prepared_.problem();
  const auto rows = rows_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  const Scores exact = exact_scores(rows, queries_.data() + first * kHeadDim, problem.keys,
                                    keys_.data(), inputs_.softmax_scale);
  const Weights exact_weights = softmax_weights(exact, problem);
  const std::vector<double> truth = average_values(exact_weights, values_.data());
  std::ranges::copy(truth, exact_.begin() + first * kHeadDim);

  TileResult tile;
  {
    const CastWeights cast = cast_weights(exact, problem, decoded_.rule);
    const Weights normal = partly_cast_weights(cast, exact, problem, CastPart::normal);
    const Weights tail = partly_cast_weights(cast, exact, problem, CastPart::tail);
    tile.sources.probability_coding.add(average_values(normal, values_.data()), truth);
    tile.sources.underflow_tail.add(average_values(tail, values_.data()), truth);
    for (const double mass : flushed_mass(exact_weights, cast)) tile.sources.flushed_mass += mass;
  }
  tile.sources.value_rounding.add(average_quantized_values(exact_weights, decoded_), truth);

  const Scores quantized = quantized_scores(rows, first, decoded_);
  for (std::int64_t r = 0; r < count; ++r) {
    const std::int64_t visible = schedule::visible_keys(problem, rows[static_cast<std::size_t>(r)]);
    if (visible == 0) continue;
    tile.score_variance += score_error_variance(quantized.values.data() + r * problem.keys,
                                                exact.values.data() + r * problem.keys, visible);
    ++tile.rows_with_keys;
  }
  tile.sources.query_key_rounding.add(
      average_values(softmax_weights(quantized, problem), values_.data()), truth);

  const CastWeights cast = cast_weights(quantized, problem, decoded_.rule);
  const std::vector<double> plain = average_quantized_values(cast.weights, decoded_);
  std::ranges::copy(plain, emulated_.begin() + first * kHeadDim);
  for (const RepairSet& set : repairs) {
    BudgetErrors errors;
    errors.budget = set.budget;
    errors.tokens = set.rows.count;
    std::vector<double> repaired =
        set.without_axes ? average_quantized_values(cast.weights, *set.without_axes) : plain;
    add_repair(cast, first, decoded_, set.rows, repaired);
    errors.error.add(repaired, truth);
    tile.budgets.push_back(errors);
  }
  return tile;
}

HeadResult HeadStudy::run(std::span<const double> budgets, bool run_backend) {
  tracker_.begin("sources of the error");
  const std::vector<RepairSet> repairs = prepare_repairs(budgets);
  std::vector<TileResult> tiles(static_cast<std::size_t>(tile_count()));
  pool_.parallel_for(tile_count(), [&](std::int64_t index, int) {
    const std::int64_t first = index * kTileRows;
    const std::int64_t count = std::min(kTileRows, row_count() - first);
    tiles[static_cast<std::size_t>(index)] = study_tile(first, count, repairs);
    tracker_.advance(kTilePasses * static_cast<double>(count * prepared_.problem().keys));
  });

  HeadResult result;
  result.plan = prepared_.plan();
  double variance = 0.0;
  std::int64_t rows_with_keys = 0;
  result.budgets = tiles.front().budgets;
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    const TileResult& tile = tiles[t];
    result.sources.query_key_rounding.merge(tile.sources.query_key_rounding);
    result.sources.value_rounding.merge(tile.sources.value_rounding);
    result.sources.probability_coding.merge(tile.sources.probability_coding);
    result.sources.underflow_tail.merge(tile.sources.underflow_tail);
    result.sources.flushed_mass += tile.sources.flushed_mass / static_cast<double>(row_count());
    variance += tile.score_variance;
    rows_with_keys += tile.rows_with_keys;
    for (std::size_t i = 0; t > 0 && i < result.budgets.size(); ++i) {
      result.budgets[i].error.merge(tile.budgets[i].error);
    }
  }
  if (rows_with_keys > 0) {
    result.measured_score_error = std::sqrt(variance / static_cast<double>(rows_with_keys));
  }
  result.sources.output_rounding.add(round_to_type(emulated_, inputs_.q.type), emulated_);

  if (run_backend) {
    measure_backend(result);
  } else {
    result.total = measure_error(emulated_, exact_);
    result.row_errors = row_errors(emulated_, exact_);
  }
  result.reference = measure_reference();
  for (std::size_t f = 0; f < kInt8Forms.size(); ++f) {
    result.int8_scores[f] = measure_int8(kInt8Forms[f]);
  }
  return result;
}

void HeadStudy::measure_backend(HeadResult& result) const {
  tracker_.begin("attention");
  const std::vector<float> all = prepared_.run_backend(pool_);
  std::vector<double> output;
  output.reserve(exact_.size());
  for (const std::int64_t row : rows_) {
    const auto start = all.begin() + row * kHeadDim;
    output.insert(output.end(), start, start + kHeadDim);
  }
  result.total = measure_error(output, exact_);
  result.sources.accumulation = measure_error(output, emulated_);
  result.row_errors = row_errors(output, exact_);
  const schedule::Problem& problem = prepared_.problem();
  tracker_.advance(kVariantPasses * static_cast<double>(problem.queries) *
                   static_cast<double>(problem.keys) / kBackendSpeedup);
}

ErrorMeasure HeadStudy::measure_reference() const {
  tracker_.begin("reference numerics");
  const ReferenceHead reference(inputs_, rows_);
  std::vector<ErrorMeasure> tiles(static_cast<std::size_t>(tile_count()));
  pool_.parallel_for(tile_count(), [&](std::int64_t index, int) {
    const std::int64_t first = index * kTileRows;
    const std::int64_t count = std::min(kTileRows, row_count() - first);
    tiles[static_cast<std::size_t>(index)] =
        measure_error(reference.output(first, count), exact_tile(first, count));
    tracker_.advance(kVariantPasses * static_cast<double>(count * prepared_.problem().keys));
  });
  ErrorMeasure total;
  for (const ErrorMeasure& tile : tiles) total.merge(tile);
  return total;
}

ErrorMeasure HeadStudy::measure_int8(const Int8Form& form) const {
  tracker_.begin("INT8 scores");
  const Int8Head head(inputs_, rows_, form);
  const schedule::Problem& problem = prepared_.problem();
  std::vector<ErrorMeasure> tiles(static_cast<std::size_t>(tile_count()));
  pool_.parallel_for(tile_count(), [&](std::int64_t index, int) {
    const std::int64_t first = index * kTileRows;
    const std::int64_t count = std::min(kTileRows, row_count() - first);
    const Weights weights = softmax_weights(head.scores(first, count), problem);
    tiles[static_cast<std::size_t>(index)] =
        measure_error(average_values(weights, values_.data()), exact_tile(first, count));
    tracker_.advance(kVariantPasses * static_cast<double>(count * problem.keys));
  });
  ErrorMeasure total;
  for (const ErrorMeasure& tile : tiles) total.merge(tile);
  return total;
}

VariantErrors HeadStudy::run_variant(const NumericOptions& numerics) {
  tracker_.begin("options");
  const PreparedHead prepared(inputs_, numerics, 0, pool_);
  const DecodedHead decoded = prepared.decode(rows_);
  const schedule::Problem& problem = prepared.problem();
  std::vector<ErrorMeasure> tiles(static_cast<std::size_t>(tile_count()));
  pool_.parallel_for(tile_count(), [&](std::int64_t index, int) {
    const std::int64_t first = index * kTileRows;
    const std::int64_t count = std::min(kTileRows, row_count() - first);
    const auto rows =
        rows_.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
    const Scores scores = quantized_scores(rows, first, decoded);
    const CastWeights cast = cast_weights(scores, problem, decoded.rule);
    tiles[static_cast<std::size_t>(index)] =
        measure_error(average_quantized_values(cast.weights, decoded), exact_tile(first, count));
    tracker_.advance(kVariantPasses * static_cast<double>(count * problem.keys));
  });
  VariantErrors result{.plan = prepared.plan(), .error = {}};
  for (const ErrorMeasure& tile : tiles) result.error.merge(tile);
  return result;
}

}  // namespace openvc::study
