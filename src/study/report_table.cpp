// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <iterator>

#include "study/report.hpp"
#include "study/report_text.hpp"
#include "study/study_summary.hpp"

namespace openvc::study {
namespace {

using Buffer = fmt::memory_buffer;

template <class... Arguments>
void print(Buffer& out, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Arguments>(arguments)...);
}

void print_summary(Buffer& out, const StudyResult& study, const StudySummary& summary) {
  const auto heads = study.results.size();
  print(out, "  {:<26}{:>10}   worst {} ({})\n", "error, RMS over heads",
        percent(summary.total.rms), percent(summary.total.worst),
        head_name(study, summary.total.worst_head));
  print(out, "  {:<26}{:>10}   worst {} ({})\n", "reference numerics",
        percent(summary.reference.rms), percent(summary.reference.worst),
        head_name(study, summary.reference.worst_head));
  print(out, "  {:<26}{:>10}   {:.2g} extra k-steps per head, {} of {} rotated\n",
        "added main-loop work", exact_percent(summary.added_work), summary.mean_extra_steps,
        summary.heads_rotated, heads);
  print(out, "  {:<26}{:>10.5f}   largest single error {:.3g}\n\n", "smallest cosine",
        summary.smallest_cosine, summary.largest_error);
}

void print_sources(Buffer& out, const StudyResult& study, const StudySummary& summary) {
  print(out, "{:<28}{:>10}  {:>10}\n", "Source, the rest exact", "RMS", "worst head");
  for (std::size_t s = 0; s < kSources.size(); ++s) {
    if (!study.backend_ran && kSources[s].id == "accumulation") continue;
    const HeadSpread& spread = summary.sources[s];
    print(out, "  {:<26}{:>10}  {:>10}  {}{}\n", kSources[s].label, percent(spread.rms),
          percent(spread.worst), head_name(study, spread.worst_head),
          s < kSourcesOfTotal ? "" : "; not part of the error above");
  }
  print(out, "  {:<26}{:>10}\n\n", "softmax mass flushed", percent(summary.flushed_mass));
}

void print_int8(Buffer& out, const StudyResult& study, const StudySummary& summary) {
  print(out, "{:<28}{:>10}  {:>10}\n", "INT8 scores, the rest exact", "RMS", "worst head");
  for (std::size_t f = 0; f < kInt8Forms.size(); ++f) {
    const HeadSpread& spread = summary.int8_scores[f];
    print(out, "  {:<26}{:>10}  {:>10}  {}\n", kInt8Forms[f].label, percent(spread.rms),
          percent(spread.worst), head_name(study, spread.worst_head));
  }
  print(out, "\n");
}

void print_heads(Buffer& out, const StudyResult& study) {
  print(out, "{:<18}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}   {:>14}   {}\n", "Head", "error",
        "reference", "Q and K", "V", "coding", "tail", "score error", "plan");
  print(out, "{:<18}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}   {:>14}\n", "", "", "", "", "", "", "",
        "plan/measured");
  for (std::size_t i = 0; i < study.results.size(); ++i) {
    const HeadResult& head = study.results[i];
    const SourceErrors& sources = head.sources;
    print(out, "  {:<16}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}   {:>6.3f} / {:>5.3f}   {}\n",
          head_name(study, i), percent(head.total.relative_l2()),
          percent(head.reference.relative_l2()), percent(sources.query_key_rounding.relative_l2()),
          percent(sources.value_rounding.relative_l2()),
          percent(sources.probability_coding.relative_l2()),
          percent(sources.underflow_tail.relative_l2()), head.plan.predicted_score_error,
          head.measured_score_error, plan_phrase(head.plan));
  }
  print(out, "\n");
}

void print_budgets(Buffer& out, const StudySummary& summary) {
  if (summary.budgets.empty()) return;
  print(out, "{:<28}{:>10}{:>10}\n", "V repair, share of tokens", "RMS", "worst");
  for (const BudgetSummary& budget : summary.budgets) {
    print(out, "  {:<26}{:>10}{:>10}\n", exact_percent(budget.budget), percent(budget.error.rms),
          percent(budget.error.worst));
  }
  print(out, "\n");
}

void print_variants(Buffer& out, const StudyResult& study, const StudySummary& summary) {
  if (study.variants.empty()) return;
  print(out, "{:<58}{:>10}{:>10}{:>12}\n", "Option", "RMS", "worst", "added work");
  print(out, "  {:<56}{:>10}{:>10}{:>12}\n", "as above", percent(summary.total.rms),
        percent(summary.total.worst), exact_percent(summary.added_work));
  for (std::size_t i = 0; i < study.variants.size(); ++i) {
    const Variant& variant = study.variants[i];
    print(out, "  {:<56}{:>10}{:>10}{:>12}\n", variant.group + ": " + variant.label,
          percent(summary.variants[i].error.rms), percent(summary.variants[i].error.worst),
          exact_percent(summary.variants[i].added_work));
  }
  print(out, "  {:<56}{:>10}{:>10}{:>12}\n\n", "reference numerics", percent(summary.reference.rms),
        percent(summary.reference.worst), "0 %");
}

}  // namespace

std::string report_table(const StudyResult& study, const ReportHeader& header) {
  const StudySummary summary = summarize(study);
  Buffer out;
  print(out, "Attention error of {}\n  {}; {} queries per head against float64, in {:.1f} s\n\n",
        printable(header.source), shape_phrase(study, "x"), study.rows.size(), study.seconds);
  if (!header.details.empty()) print(out, "Input: {}\n\n", printable(header.details));
  if (!header.note.empty()) print(out, "Note: {}\n\n", printable(header.note));
  print_summary(out, study, summary);
  print_sources(out, study, summary);
  print_int8(out, study, summary);
  print_heads(out, study);
  print_budgets(out, summary);
  print_variants(out, study, summary);
  return fmt::to_string(out);
}

}  // namespace openvc::study
