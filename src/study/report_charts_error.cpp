// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "study/chart_frame.hpp"
#include "study/report_charts.hpp"
#include "study/report_text.hpp"
#include "study/svg.hpp"

namespace openvc::study {
namespace {

/// Height of a row so that any number of heads fills about the same space.
double row_height(std::size_t heads) {
  return std::clamp(300.0 / static_cast<double>(heads), 7.0, 60.0);
}

/// Every how many rows a label fits.
std::size_t label_step(double row) { return static_cast<std::size_t>(std::ceil(13.0 / row)); }

}  // namespace

std::vector<std::size_t> chart_heads(const StudyResult& study) {
  std::vector<std::size_t> heads(study.results.size());
  std::iota(heads.begin(), heads.end(), std::size_t{0});
  if (heads.size() <= kMaxChartHeads) return heads;
  std::ranges::stable_sort(heads, [&](std::size_t a, std::size_t b) {
    return study.results[a].total.relative_l2() > study.results[b].total.relative_l2();
  });
  heads.resize(kMaxChartHeads);
  std::ranges::sort(heads);
  return heads;
}

std::string comparison_chart(const StudySummary& summary) {
  constexpr double kBar = 26.0;
  constexpr double kRow = 62.0;
  constexpr double kValueRoom = 76.0;
  Svg svg(kChartWidth, 2 * kRow, "Error of this library and of the reference numerics");
  const double largest = std::max({summary.total.rms, summary.reference.rms, 1e-12});
  const LinearScale x{0.0, largest, 0.0, kChartWidth - kValueRoom};
  const auto bar = [&](double top, std::string_view name, double error, std::string_view fill) {
    svg.text(0, top + 16, name, "label strong");
    svg.rect(0, top + 24, std::max(x(error), 2.0), kBar, {fill});
    svg.text(std::max(x(error), 2.0) + 8, top + 24 + kBar / 2 + 5, percent(error), "label strong");
  };
  bar(0, "This library", summary.total.rms, "ours");
  bar(kRow, "Reference numerics", summary.reference.rms, "theirs");
  return svg.finish();
}

std::string head_chart(const StudyResult& study) {
  const auto heads = chart_heads(study);
  const double row = row_height(heads.size());
  const double bar = row > 16 ? std::min(0.6 * row, 30.0) : row - 2;
  double largest = 0.0;
  for (const std::size_t i : heads) {
    largest = std::max(
        {largest, study.results[i].total.relative_l2(), study.results[i].reference.relative_l2()});
  }
  const ChartFrame frame{.left = 54,
                         .right = 74,
                         .top = 20,
                         .bottom = 44,
                         .height = 64 + row * static_cast<double>(heads.size())};
  Svg svg(kChartWidth, frame.height, "Error of each head, divided by source");
  const LinearScale x = draw_x_axis(svg, frame, 100.0 * largest, "relative L2 error, %");
  const std::size_t step = label_step(row);
  for (std::size_t position = 0; position < heads.size(); ++position) {
    const std::size_t i = heads[position];
    const HeadResult& head = study.results[i];
    const double middle = frame.top + row * (static_cast<double>(position) + 0.5);
    if (position % step == 0) {
      svg.text(frame.left - 8, middle + 4, short_head_name(study, i), "tick", Anchor::end);
      svg.text(kChartWidth, middle + 4, percent(head.total.relative_l2()), "label strong",
               Anchor::end);
    }
    double squares = 0.0;
    for (std::size_t s = 0; s < kSourcesOfTotal; ++s) {
      squares += std::pow((head.sources.*kSources[s].measure).relative_l2(), 2);
    }
    const double total = head.total.relative_l2();
    double start = 0.0;
    for (std::size_t s = 0; s < kSourcesOfTotal && squares > 0.0; ++s) {
      const double alone = (head.sources.*kSources[s].measure).relative_l2();
      const double end = start + total * alone * alone / squares;
      svg.rect(x(100 * start), middle - bar / 2, x(100 * end) - x(100 * start), bar,
               {kSourceClasses[s], fmt::format("{}: {} alone; total {}", kSources[s].label,
                                               percent(alone), percent(total))});
      start = end;
    }
    const double reference = x(100 * head.reference.relative_l2());
    svg.diamond(reference, middle, std::min(6.0, bar / 2 + 1),
                {"reference",
                 fmt::format("reference numerics: {}", percent(head.reference.relative_l2()))});
  }
  svg.text(frame.left - 8, 12, "head", "axis-title", Anchor::end);
  svg.text(kChartWidth, 12, "total", "axis-title", Anchor::end);
  return svg.finish();
}

std::string source_chart(const StudyResult& study, const StudySummary& summary) {
  constexpr double kRow = 40.0;
  constexpr double kBar = 18.0;
  double largest = 0.0;
  for (const HeadSpread& spread : summary.sources) largest = std::max(largest, spread.worst);
  const ChartFrame frame{
      .left = 138, .right = 74, .top = 8, .bottom = 44, .height = 52 + kRow * kSources.size()};
  Svg svg(kChartWidth, frame.height, "Error of each source by itself");
  const LinearScale x = draw_x_axis(svg, frame, 100.0 * largest, "relative L2 error, %");
  for (std::size_t s = 0; s < kSources.size(); ++s) {
    const double middle = frame.top + kRow * (static_cast<double>(s) + 0.5);
    const HeadSpread& spread = summary.sources[s];
    svg.text(frame.left - 10, middle + 4, kSources[s].label, "label", Anchor::end);
    if (!study.backend_ran && kSources[s].id == "accumulation") {
      svg.text(frame.left + 6, middle + 4, "not measured", "tick");
      continue;
    }
    svg.rect(x(0), middle - kBar / 2, std::max(x(100 * spread.rms) - x(0), 1.0), kBar,
             {kSourceClasses[s],
              fmt::format("{}: {} (RMS over heads)", kSources[s].label, percent(spread.rms))});
    if (study.results.size() > 1) {
      for (const std::size_t i : chart_heads(study)) {
        const double error = (study.results[i].sources.*kSources[s].measure).relative_l2();
        svg.circle(x(100 * error), middle, 3.5,
                   {"dot", fmt::format("{}: {}", head_name(study, i), percent(error))});
      }
    }
    svg.text(kChartWidth, middle + 4, percent(spread.rms), "label strong", Anchor::end);
  }
  return svg.finish();
}

}  // namespace openvc::study
