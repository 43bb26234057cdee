// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "study/error_study.hpp"

// Figures over all heads, computed once for the table, the JSON file and the page.
namespace openvc::study {

/// A relative L2 error over heads. Heads count equally, whatever the size of their outputs.
struct HeadSpread {
  double rms = 0.0;
  double worst = 0.0;
  std::size_t worst_head = 0;  ///< index into StudyResult::results
};

/// One source of error, with its stable name, its label and its place in SourceErrors.
struct Source {
  std::string_view id;
  std::string_view label;
  ErrorMeasure SourceErrors::*measure;
};

/// In the order of the computation. Storing the output comes last and is not part of the total.
inline constexpr std::array<Source, 6> kSources = {{
    {"query_key_rounding", "Q and K rounding", &SourceErrors::query_key_rounding},
    {"value_rounding", "V rounding", &SourceErrors::value_rounding},
    {"probability_coding", "Probability coding", &SourceErrors::probability_coding},
    {"underflow_tail", "Underflow tail", &SourceErrors::underflow_tail},
    {"accumulation", "Accumulation", &SourceErrors::accumulation},
    {"output_rounding", "Storing the output", &SourceErrors::output_rounding},
}};
inline constexpr std::size_t kSourcesOfTotal = kSources.size() - 1;

struct BudgetSummary {
  double budget = 0.0;
  HeadSpread error;
};

struct VariantSummary {
  HeadSpread error;
  double added_work = 0.0;  ///< mean over heads
};

struct StudySummary {
  HeadSpread total;
  HeadSpread reference;
  double smallest_cosine = 1.0;
  double largest_error = 0.0;
  double added_work = 0.0;    ///< mean over heads
  double flushed_mass = 0.0;  ///< mean over heads
  std::size_t heads_with_columns = 0;
  std::size_t heads_rotated = 0;
  double mean_extra_steps = 0.0;
  std::array<HeadSpread, kSources.size()> sources{};
  std::array<HeadSpread, kInt8Forms.size()> int8_scores{};
  std::size_t largest_source = 0;  ///< of those in the total
  std::vector<BudgetSummary> budgets;
  std::vector<VariantSummary> variants;
  std::vector<double> sorted_row_errors;  ///< of all heads
};

[[nodiscard]] StudySummary summarize(const StudyResult& study);

/// "batch 1, head 3", or "head 3" where there is only one batch entry.
[[nodiscard]] std::string head_name(const StudyResult& study, std::size_t index);

}  // namespace openvc::study
