// SPDX-License-Identifier: BSD-3-Clause
#include "study/svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "study/report_text.hpp"

namespace openvc::study {
namespace {

/// Coordinates with two decimals at most: smaller differences are invisible.
std::string number(double value) {
  if (!std::isfinite(value)) return "0";
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string_view anchor_name(Anchor anchor) {
  switch (anchor) {
    case Anchor::start:
      return "start";
    case Anchor::middle:
      return "middle";
    case Anchor::end:
      return "end";
  }
  return "start";
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Svg::Svg(double width, double height, std::string_view title) : width_(width), height_(height) {
  body_ = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", number(width),
                      number(height), escape_markup(title));
}

void Svg::close(std::string_view element, std::string_view tooltip) {
  if (tooltip.empty()) {
    body_ += "/>\n";
  } else {
    fmt::format_to(std::back_inserter(body_), "><title>{}</title></{}>\n", escape_markup(tooltip),
                   element);
  }
}

void Svg::rect(double x, double y, double width, double height, const Mark& mark) {
  fmt::format_to(std::back_inserter(body_),
                 "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", mark.css_class,
                 number(x), number(y), number(std::max(width, 0.0)), number(std::max(height, 0.0)));
  close("rect", mark.tooltip);
}

void Svg::shade(double x, double y, double width, double height, double degree, const Mark& mark) {
  fmt::format_to(
      std::back_inserter(body_),
      "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill-opacity=\"{}\"",
      mark.css_class, number(x), number(y), number(width), number(height),
      number(std::clamp(degree, 0.0, 1.0)));
  close("rect", mark.tooltip);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view css_class) {
  fmt::format_to(std::back_inserter(body_),
                 "<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", css_class,
                 number(x1), number(y1), number(x2), number(y2));
}

void Svg::circle(double x, double y, double radius, const Mark& mark) {
  fmt::format_to(std::back_inserter(body_), "<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"",
                 mark.css_class, number(x), number(y), number(radius));
  close("circle", mark.tooltip);
}

void Svg::diamond(double x, double y, double radius, const Mark& mark) {
  fmt::format_to(std::back_inserter(body_), "<path class=\"{}\" d=\"M{} {}L{} {}L{} {}L{} {}Z\"",
                 mark.css_class, number(x), number(y - radius), number(x + radius), number(y),
                 number(x), number(y + radius), number(x - radius), number(y));
  close("path", mark.tooltip);
}

void Svg::polyline(const std::vector<Point>& points, std::string_view css_class) {
  std::string list;
  for (const Point& point : points) {
    fmt::format_to(std::back_inserter(list), "{}{},{}", list.empty() ? "" : " ", number(point.x),
                   number(point.y));
  }
  fmt::format_to(std::back_inserter(body_), "<polyline class=\"{}\" points=\"{}\"/>\n", css_class,
                 list);
}

void Svg::text(double x, double y, std::string_view text, std::string_view css_class,
               Anchor anchor) {
  fmt::format_to(std::back_inserter(body_),
                 "<text class=\"{}\" x=\"{}\" y=\"{}\" text-anchor=\"{}\">{}</text>\n", css_class,
                 number(x), number(y), anchor_name(anchor), escape_markup(text));
}

std::string Svg::finish() const { return body_ + "</svg>\n"; }

std::vector<double> round_ticks(double largest, int count) {
  const double safe = std::isfinite(largest) && largest > 0.0 ? largest : 1.0;
  const double raw = safe / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10.0 * power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= raw * 0.999) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (int i = 0; ticks.size() < 2 || ticks.back() < safe * 0.999; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string tick_text(double value) { return fmt::format("{:.6g}", value); }

}  // namespace openvc::study
