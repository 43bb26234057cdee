// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "study/chart_frame.hpp"
#include "study/report_charts.hpp"
#include "study/report_text.hpp"
#include "study/svg.hpp"

namespace openvc::study {
namespace {

/// A row of the option chart.
struct OptionRow {
  std::string label;
  double error;
  double worst;
  double added_work;
  std::string_view mark;
};

std::vector<Svg::Point> curve(const std::vector<BudgetSummary>& budgets, const LinearScale& x,
                              const LinearScale& y) {
  std::vector<Svg::Point> points;
  for (const BudgetSummary& budget : budgets) {
    points.push_back({x(100 * budget.budget), y(100 * budget.error.rms)});
  }
  return points;
}

}  // namespace

std::string budget_chart(const StudySummary& summary) {
  const ChartFrame frame{.left = 44, .right = 16, .top = 40, .bottom = 44, .height = 250};
  Svg svg(kChartWidth, frame.height, "Error over the share of repaired tokens");
  double largest_budget = 0.0;
  double largest_error = 0.0;
  for (const BudgetSummary& budget : summary.budgets) {
    largest_budget = std::max(largest_budget, budget.budget);
    largest_error = std::max(largest_error, budget.error.rms);
  }
  const LinearScale y =
      draw_y_axis(svg, frame, 100 * largest_error, "relative L2 error, %, RMS over heads");
  const LinearScale x =
      draw_x_axis(svg, frame, 100 * largest_budget, "tokens whose V is repaired, %");
  svg.polyline(curve(summary.budgets, x, y), "curve ours-line");
  for (const BudgetSummary& budget : summary.budgets) {
    svg.circle(x(100 * budget.budget), y(100 * budget.error.rms), 4.5,
               {"ours", fmt::format("{} of the tokens: {}", exact_percent(budget.budget),
                                    percent(budget.error.rms))});
  }
  return svg.finish();
}

std::string option_chart(const StudyResult& study, const StudySummary& summary) {
  constexpr double kRow = 23.0;
  constexpr double kGroupGap = 34.0;
  std::vector<OptionRow> rows = {
      {"this run", summary.total.rms, summary.total.worst, summary.added_work, "ours"}};
  std::vector<std::string> groups = {""};
  for (std::size_t i = 0; i < study.variants.size(); ++i) {
    const VariantSummary& variant = summary.variants[i];
    rows.push_back({study.variants[i].label, variant.error.rms, variant.error.worst,
                    variant.added_work, "option"});
    groups.push_back(study.variants[i].group);
  }
  rows.push_back(
      {"reference numerics", summary.reference.rms, summary.reference.worst, 0.0, "theirs"});
  groups.emplace_back("Comparison");

  double height = 20 + 44;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    height += kRow + (i > 0 && groups[i] != groups[i - 1] ? kGroupGap : 0.0);
  }
  double largest = 0.0;
  for (const OptionRow& row : rows) largest = std::max(largest, row.error);
  const ChartFrame frame{.left = 232, .right = 74, .top = 20, .bottom = 44, .height = height};
  Svg svg(kChartWidth, height, "Error with other option values");
  const LinearScale x =
      draw_x_axis(svg, frame, 100 * largest, "relative L2 error, %, RMS over heads");
  svg.text(kChartWidth, 12, "added work", "axis-title", Anchor::end);
  svg.line(x(100 * summary.total.rms), frame.top, x(100 * summary.total.rms), frame.plot_bottom(),
           "guide");
  double top = frame.top;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const OptionRow& row = rows[i];
    if (i > 0 && groups[i] != groups[i - 1]) {
      top += kGroupGap;
      svg.text(0, top - 5, groups[i], "group");
    }
    const double middle = top + kRow / 2;
    const std::string tooltip =
        fmt::format("{}: {}, worst head {}, {} more main-loop work", row.label, percent(row.error),
                    percent(row.worst), percent(row.added_work));
    svg.text(frame.left - 10, middle + 4, row.label, i == 0 ? "label strong" : "label",
             Anchor::end);
    svg.line(x(0), middle, x(100 * row.error), middle, "stem");
    if (row.mark == "theirs") {
      svg.diamond(x(100 * row.error), middle, 6, {"reference", tooltip});
    } else {
      svg.circle(x(100 * row.error), middle, 5, {row.mark, tooltip});
    }
    svg.text(kChartWidth, middle + 4,
             row.added_work > 0 ? "+" + exact_percent(row.added_work) : "none", "tick",
             Anchor::end);
    top += kRow;
  }
  return svg.finish();
}

std::string plan_chart(const StudyResult& study) {
  constexpr int kTicks = 5;  // on both axes, so that the diagonal means equality
  const ChartFrame frame{.left = 44, .right = 16, .top = 40, .bottom = 44, .height = 300};
  Svg svg(kChartWidth, frame.height, "Predicted and measured error of the scores");
  double largest = 0.0;
  for (const HeadResult& head : study.results) {
    largest =
        std::max({largest, double{head.plan.predicted_score_error}, head.measured_score_error});
  }
  const LinearScale y = draw_y_axis(svg, frame, largest, "measured, 1/8 octave", kTicks);
  const LinearScale x =
      draw_x_axis(svg, frame, largest, "predicted by the plan, 1/8 octave", kTicks);
  svg.line(x(0), y(0), x(x.value_to), y(x.value_to), "guide");
  for (std::size_t i = 0; i < study.results.size(); ++i) {
    const HeadResult& head = study.results[i];
    svg.circle(x(head.plan.predicted_score_error), y(head.measured_score_error), 5,
               {head.plan.extra_steps > 0 ? "ours" : "plain-head",
                fmt::format("{}: predicted {:.3f}, measured {:.3f}; {}", head_name(study, i),
                            head.plan.predicted_score_error, head.measured_score_error,
                            plan_phrase(head.plan))});
  }
  return svg.finish();
}

}  // namespace openvc::study
