// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "study/svg.hpp"

namespace openvc::study {

/// Width of every chart in its own units: about one column of the page in pixels, so that text has
/// the size that the style sheet gives it.
inline constexpr double kChartWidth = 540.0;

/// The margins around a plot.
struct ChartFrame {
  double left;
  double right;
  double top;
  double bottom;
  double height;

  [[nodiscard]] double plot_right() const { return kChartWidth - right; }
  [[nodiscard]] double plot_bottom() const { return height - bottom; }
};

/// Grid lines, about `ticks` numbers and the title of an axis that starts at 0.
[[nodiscard]] LinearScale draw_x_axis(Svg& svg, const ChartFrame& frame, double largest,
                                      std::string_view title, int ticks = 5);
[[nodiscard]] LinearScale draw_y_axis(Svg& svg, const ChartFrame& frame, double largest,
                                      std::string_view title, int ticks = 4);

}  // namespace openvc::study
