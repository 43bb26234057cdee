// SPDX-License-Identifier: BSD-3-Clause
#include "study/study_summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace openvc::study {
namespace {

/// `error(result)` is the relative L2 error of one head.
template <class Error>
HeadSpread spread(const StudyResult& study, const Error& error) {
  HeadSpread spread;
  double squares = 0.0;
  for (std::size_t i = 0; i < study.results.size(); ++i) {
    const double value = error(study.results[i]);
    squares += value * value;
    if (i == 0 || value > spread.worst || std::isnan(value)) {
      spread.worst = value;
      spread.worst_head = i;
    }
  }
  const auto heads = static_cast<double>(std::max<std::size_t>(study.results.size(), 1));
  spread.rms = std::sqrt(squares / heads);
  return spread;
}

void summarize_plans(const StudyResult& study, StudySummary& summary) {
  const auto heads = static_cast<double>(std::max<std::size_t>(study.results.size(), 1));
  for (const HeadResult& head : study.results) {
    summary.added_work += added_work(head.plan) / heads;
    summary.mean_extra_steps += head.plan.extra_steps / heads;
    summary.flushed_mass += head.sources.flushed_mass / heads;
    if (head.plan.extra_steps > 0) ++summary.heads_with_columns;
    if (head.plan.rotated) ++summary.heads_rotated;
    summary.smallest_cosine = std::min(summary.smallest_cosine, head.total.cosine());
    summary.largest_error = std::max(summary.largest_error, head.total.max_error);
    summary.sorted_row_errors.insert(summary.sorted_row_errors.end(), head.row_errors.begin(),
                                     head.row_errors.end());
  }
  std::ranges::sort(summary.sorted_row_errors);
}

}  // namespace

StudySummary summarize(const StudyResult& study) {
  StudySummary summary;
  summarize_plans(study, summary);
  summary.total = spread(study, [](const HeadResult& h) { return h.total.relative_l2(); });
  summary.reference = spread(study, [](const HeadResult& h) { return h.reference.relative_l2(); });
  for (std::size_t f = 0; f < kInt8Forms.size(); ++f) {
    summary.int8_scores[f] =
        spread(study, [f](const HeadResult& h) { return h.int8_scores[f].relative_l2(); });
  }
  for (std::size_t s = 0; s < kSources.size(); ++s) {
    summary.sources[s] = spread(
        study, [s](const HeadResult& h) { return (h.sources.*kSources[s].measure).relative_l2(); });
    if (s < kSourcesOfTotal &&
        summary.sources[s].rms > summary.sources[summary.largest_source].rms) {
      summary.largest_source = s;
    }
  }
  if (study.results.empty()) return summary;
  for (std::size_t i = 0; i < study.results.front().budgets.size(); ++i) {
    summary.budgets.push_back(
        {study.results.front().budgets[i].budget,
         spread(study, [i](const HeadResult& h) { return h.budgets[i].error.relative_l2(); })});
  }
  for (std::size_t i = 0; i < study.variants.size(); ++i) {
    VariantSummary variant;
    variant.error =
        spread(study, [i](const HeadResult& h) { return h.variants[i].error.relative_l2(); });
    for (const HeadResult& head : study.results) {
      variant.added_work += added_work(head.variants[i].plan);
    }
    variant.added_work /= static_cast<double>(study.results.size());
    summary.variants.push_back(variant);
  }
  return summary;
}

std::string head_name(const StudyResult& study, std::size_t index) {
  const HeadResult& head = study.results[index];
  return study.batch > 1 ? fmt::format("batch {}, head {}", head.batch, head.head)
                         : fmt::format("head {}", head.head);
}

}  // namespace openvc::study
