// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace openvc::study {

/// `text` with the characters that have a meaning in HTML and SVG replaced.
[[nodiscard]] std::string escape_markup(std::string_view text);

enum class Anchor { start, middle, end };

/// Text of one element; an empty tooltip adds none.
struct Mark {
  std::string_view css_class;
  std::string_view tooltip{};
};

/// An SVG drawing for a page: colours come from the page's style sheet through classes, the size
/// from its layout.
class Svg {
 public:
  /// `title` is read out by screen readers.
  Svg(double width, double height, std::string_view title);

  void rect(double x, double y, double width, double height, const Mark& mark);
  /// Filled to a degree from 0 to 1 with the colour of the class.
  void shade(double x, double y, double width, double height, double degree, const Mark& mark);
  void line(double x1, double y1, double x2, double y2, std::string_view css_class);
  void circle(double x, double y, double radius, const Mark& mark);
  /// A square on its corner.
  void diamond(double x, double y, double radius, const Mark& mark);
  struct Point {
    double x;
    double y;
  };
  void polyline(const std::vector<Point>& points, std::string_view css_class);
  void text(double x, double y, std::string_view text, std::string_view css_class,
            Anchor anchor = Anchor::start);

  [[nodiscard]] double width() const { return width_; }
  [[nodiscard]] double height() const { return height_; }
  [[nodiscard]] std::string finish() const;

 private:
  void close(std::string_view element, std::string_view tooltip);

  double width_;
  double height_;
  std::string body_;
};

/// Maps values to positions, linearly.
struct LinearScale {
  double value_from;
  double value_to;
  double position_from;
  double position_to;

  [[nodiscard]] double operator()(double value) const {
    const double share = value_to > value_from ? (value - value_from) / (value_to - value_from) : 0;
    return position_from + share * (position_to - position_from);
  }
};

/// Round numbers from 0 to at least `largest`, about `count` of them; at least {0, 1 step}.
[[nodiscard]] std::vector<double> round_ticks(double largest, int count);

/// A number as an axis shows it: no trailing zeros.
[[nodiscard]] std::string tick_text(double value);

}  // namespace openvc::study
