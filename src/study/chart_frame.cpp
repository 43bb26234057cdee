// SPDX-License-Identifier: BSD-3-Clause
#include "study/chart_frame.hpp"

namespace openvc::study {

LinearScale draw_x_axis(Svg& svg, const ChartFrame& frame, double largest, std::string_view title,
                        int ticks) {
  const auto values = round_ticks(largest, ticks);
  const LinearScale x{0.0, values.back(), frame.left, frame.plot_right()};
  for (const double tick : values) {
    svg.line(x(tick), frame.top, x(tick), frame.plot_bottom(), tick == 0.0 ? "axis" : "grid");
    svg.text(x(tick), frame.plot_bottom() + 17, tick_text(tick), "tick", Anchor::middle);
  }
  svg.text((frame.left + frame.plot_right()) / 2, frame.plot_bottom() + 37, title, "axis-title",
           Anchor::middle);
  return x;
}

LinearScale draw_y_axis(Svg& svg, const ChartFrame& frame, double largest, std::string_view title,
                        int ticks) {
  const auto values = round_ticks(largest, ticks);
  const LinearScale y{0.0, values.back(), frame.plot_bottom(), frame.top};
  for (const double tick : values) {
    svg.line(frame.left, y(tick), frame.plot_right(), y(tick), tick == 0.0 ? "axis" : "grid");
    svg.text(frame.left - 8, y(tick) + 4, tick_text(tick), "tick", Anchor::end);
  }
  // Above the axis instead of along it: nobody has to tilt the head.
  svg.text(0, frame.top - 18, title, "axis-title");
  return y;
}

}  // namespace openvc::study
