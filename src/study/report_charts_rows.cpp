// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "study/chart_frame.hpp"
#include "study/report_charts.hpp"
#include "study/report_text.hpp"
#include "study/svg.hpp"

namespace openvc::study {
namespace {

/// The largest error that a chart of single queries shows by its length or shade. A few queries
/// whose exact output almost vanishes may lie far beyond.
double shown_limit(const StudySummary& summary) {
  constexpr double kShownShare = 0.99;
  return std::max(quantile(summary.sorted_row_errors, kShownShare), 1e-9);
}

double group_error(const std::vector<double>& errors, std::size_t first, std::size_t last) {
  return root_mean_square(std::span(errors).subspan(first, last - first));
}

}  // namespace

std::string histogram_chart(const StudySummary& summary) {
  constexpr std::size_t kBins = 36;
  const ChartFrame frame{.left = 44, .right = 16, .top = 40, .bottom = 44, .height = 250};
  Svg svg(kChartWidth, frame.height, "Queries by their error");
  const auto& errors = summary.sorted_row_errors;
  const double limit = round_ticks(100 * shown_limit(summary), 5).back();
  std::vector<double> shares(kBins);
  for (const double error : errors) {
    const double place = std::isfinite(error) ? 100 * error / limit * kBins : kBins;
    const auto bin = std::min(static_cast<std::size_t>(std::min(place, double{kBins})), kBins - 1);
    shares[bin] += 100.0 / static_cast<double>(errors.size());
  }
  const LinearScale y =
      draw_y_axis(svg, frame, *std::ranges::max_element(shares), "queries, % of all");
  const LinearScale x =
      draw_x_axis(svg, frame, 100 * shown_limit(summary), "relative L2 error of a query, %");
  const double bin_width = limit / kBins;
  for (std::size_t bin = 0; bin < kBins; ++bin) {
    const double from = bin_width * static_cast<double>(bin);
    svg.rect(
        x(from) + 0.5, y(shares[bin]), x(from + bin_width) - x(from) - 1, y(0) - y(shares[bin]),
        {"ours", fmt::format("{:.3g} to {:.3g} %{}: {:.3g} % of the queries", from,
                             from + bin_width, bin + 1 == kBins ? " and more" : "", shares[bin])});
  }
  const double median = 100 * quantile(errors, 0.5);
  svg.line(x(median), frame.top - 8, x(median), frame.plot_bottom(), "guide");
  svg.text(x(median) + 6, frame.top - 2, fmt::format("median {}", percent(median / 100)), "tick");
  return svg.finish();
}

std::string position_chart(const StudyResult& study, const StudySummary& summary) {
  constexpr std::size_t kColumns = 96;
  constexpr double kLegendWidth = 120.0;
  const auto heads = chart_heads(study);
  const double row = std::clamp(190.0 / static_cast<double>(heads.size()), 3.0, 62.0);
  const double gap = row > 6 ? 1.5 : 0.0;
  const double bottom = 34 + row * static_cast<double>(heads.size());
  Svg svg(kChartWidth, bottom + 58, "Error along the sequence");
  constexpr double kLeft = 54.0;
  const double limit = shown_limit(summary);
  const std::size_t columns = std::min(kColumns, study.rows.size());
  const LinearScale x{0.0, static_cast<double>(columns), kLeft, kChartWidth};
  svg.text(kLeft - 8, 26, "head", "axis-title", Anchor::end);
  const auto step = static_cast<std::size_t>(std::ceil(13.0 / row));
  for (std::size_t position = 0; position < heads.size(); ++position) {
    const HeadResult& head = study.results[heads[position]];
    const double top = 34 + row * static_cast<double>(position);
    if (position % step == 0) {
      svg.text(kLeft - 8, top + row / 2 + 4, short_head_name(study, heads[position]), "tick",
               Anchor::end);
    }
    for (std::size_t column = 0; column < columns; ++column) {
      const std::size_t first = column * study.rows.size() / columns;
      const std::size_t last = (column + 1) * study.rows.size() / columns;
      const double error = group_error(head.row_errors, first, last);
      svg.shade(x(static_cast<double>(column)), top, x(1) - x(0) + 0.2, row - gap, error / limit,
                {"heat", fmt::format("{}, queries near {}: {}", head_name(study, heads[position]),
                                     grouped(study.rows[(first + last) / 2]), percent(error))});
    }
  }
  const std::int64_t last_query = study.queries - 1;
  for (const double share : {0.0, 0.5, 1.0}) {
    svg.text(kLeft + share * (kChartWidth - kLeft), bottom + 17,
             grouped(static_cast<std::int64_t>(share * static_cast<double>(last_query))), "tick",
             share == 0.0   ? Anchor::start
             : share == 1.0 ? Anchor::end
                            : Anchor::middle);
  }
  svg.text(kLeft, bottom + 44, "position of the query", "axis-title");

  constexpr int kLegendSteps = 24;
  const double legend_left = kChartWidth - kLegendWidth - 44;
  svg.text(legend_left - 8, bottom + 44, "0 %", "tick", Anchor::end);
  for (int i = 0; i < kLegendSteps; ++i) {
    const double width = kLegendWidth / kLegendSteps;
    svg.shade(legend_left + i * width, bottom + 34, width + 0.2, 12, (i + 0.5) / kLegendSteps,
              {"heat"});
  }
  svg.text(legend_left + kLegendWidth + 8, bottom + 44, percent(limit), "tick");
  return svg.finish();
}

}  // namespace openvc::study
