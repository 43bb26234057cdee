// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "openvc/options.hpp"
#include "openvc/tensor_view.hpp"
#include "study/error_measure.hpp"
#include "study/int8_form.hpp"
#include "study/progress.hpp"

// How far attention by this library is from exact attention, where the error comes from, and what
// each option would change. Everything is measured on some queries of every head against float64.
namespace openvc::study {

struct StudyOptions {
  AttentionOptions attention{};
  std::int64_t rows = 256;  ///< sampled queries per head, evenly spaced
  std::vector<double> budgets = {0.0, 0.005, 0.01, 0.02, 0.04, 0.08};  ///< only 0 if causal
  bool sweep_options = true;  ///< measure the other values of every option too
  bool run_backend = true;  ///< run the complete attention call; otherwise its emulation stands in
  int threads = 0;
  ProgressCallback progress{};
};

/// The error with one stage as in the contract and all others exact.
struct SourceErrors {
  ErrorMeasure query_key_rounding;
  ErrorMeasure value_rounding;
  ErrorMeasure probability_coding;  ///< 1/8-octave rounding of the weights
  ErrorMeasure underflow_tail;      ///< weights below E4M3's normal range
  ErrorMeasure accumulation;        ///< backend against the float64 emulation of the same bytes
  ErrorMeasure output_rounding;     ///< storing the output in the element type of the inputs
  double flushed_mass = 0.0;  ///< share of the softmax that ExpCast sets to zero, mean over rows
};

/// V residual repair of a share of the tokens.
struct BudgetErrors {
  double budget = 0.0;
  std::int64_t tokens = 0;
  ErrorMeasure error;
};

/// One head with other numeric options. `id` names an entry of StudyResult::variants.
struct VariantErrors {
  HeadPlan plan{};
  ErrorMeasure error;
};

struct HeadResult {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  HeadPlan plan{};
  double measured_score_error = 0.0;  ///< standard deviation of the scores' error, code units
  ErrorMeasure total;                 ///< output before it is rounded to the element type
  ErrorMeasure reference;             ///< the published reference numerics
  SourceErrors sources;
  std::array<ErrorMeasure, kInt8Forms.size()> int8_scores{};  ///< Q and K in INT8, the rest exact
  std::vector<double> row_errors;  ///< relative L2 of every sampled query
  std::vector<BudgetErrors> budgets;
  std::vector<VariantErrors> variants;  ///< in the order of StudyResult::variants
};

/// A set of numeric options that the study measures.
struct Variant {
  std::string id;     ///< stable name
  std::string group;  ///< which option it varies
  std::string label;  ///< for people
  NumericOptions numerics{};
};

struct StudyResult {
  std::int64_t batch = 0;
  std::int64_t queries = 0;
  std::int64_t keys = 0;
  std::int64_t heads = 0;
  ElementType element_type = ElementType::bfloat16;
  Mask mask = Mask::none;
  double softmax_scale = 0.0;
  NumericOptions numerics{};
  bool backend_ran = false;
  std::vector<std::int64_t> rows;  ///< the sampled queries
  std::vector<Variant> variants;
  std::vector<HeadResult> results;  ///< [batch * heads]
  double seconds = 0.0;
};

/// Throws Error if attention would refuse the tensors or an option has no meaning.
[[nodiscard]] StudyResult run_error_study(const TensorView& q, const TensorView& k,
                                          const TensorView& v, const StudyOptions& options = {});

/// `count` evenly spaced positions of [0, queries), all of them if there are no more.
[[nodiscard]] std::vector<std::int64_t> sample_rows(std::int64_t queries, std::int64_t count);

/// The values of the numeric options that a study compares, one option changed at a time.
[[nodiscard]] std::vector<Variant> option_variants(const NumericOptions& base);

/// Main-loop work that a plan adds to plain attention, as a share: residual columns. Repair adds
/// its budget on top.
[[nodiscard]] double added_work(const HeadPlan& plan);

}  // namespace openvc::study
