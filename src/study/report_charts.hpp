// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "study/error_study.hpp"
#include "study/study_summary.hpp"

// The plots of the report page, each as SVG text. Errors are relative L2 in percent throughout.
namespace openvc::study {

/// This library against the reference numerics: two bars.
[[nodiscard]] std::string comparison_chart(const StudySummary& summary);

/// One bar per head, divided by source, with the reference numerics as a mark.
[[nodiscard]] std::string head_chart(const StudyResult& study);

/// Every source by itself: a bar for the RMS over heads and a dot per head.
[[nodiscard]] std::string source_chart(const StudyResult& study, const StudySummary& summary);

/// Error over the share of repaired tokens, for both ways to choose them.
[[nodiscard]] std::string budget_chart(const StudySummary& summary);

/// The error with every other value of an option, against the one measured.
[[nodiscard]] std::string option_chart(const StudyResult& study, const StudySummary& summary);

/// How many queries have which error.
[[nodiscard]] std::string histogram_chart(const StudySummary& summary);

/// Error of the queries by their position in the sequence, a row per head.
[[nodiscard]] std::string position_chart(const StudyResult& study, const StudySummary& summary);

/// Error of the scores: what the plan of each head predicted and what was measured.
[[nodiscard]] std::string plan_chart(const StudyResult& study);

/// Heads that a chart has room for; the rest are those with the smallest error.
inline constexpr std::size_t kMaxChartHeads = 64;

/// Indices of the heads that a chart shows, in their order.
[[nodiscard]] std::vector<std::size_t> chart_heads(const StudyResult& study);

/// Colours of the sources as classes of the style sheet, in the order of kSources.
inline constexpr const char* kSourceClasses[] = {"s0", "s1", "s2", "s3", "s4", "s5"};

}  // namespace openvc::study
