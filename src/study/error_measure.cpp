// SPDX-License-Identifier: BSD-3-Clause
#include "study/error_measure.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace openvc::study {
namespace {

/// The larger of two magnitudes; NaN counts as the largest, so that it cannot be overlooked.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace

void ErrorMeasure::add(std::span<const double> output, std::span<const double> exact) {
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double difference = output[i] - exact[i];
    error_squares += difference * difference;
    exact_squares += exact[i] * exact[i];
    output_squares += output[i] * output[i];
    products += output[i] * exact[i];
    max_error = larger(max_error, std::abs(difference));
  }
  elements += static_cast<std::int64_t>(exact.size());
}

void ErrorMeasure::merge(const ErrorMeasure& other) {
  error_squares += other.error_squares;
  exact_squares += other.exact_squares;
  output_squares += other.output_squares;
  products += other.products;
  max_error = larger(max_error, other.max_error);
  elements += other.elements;
}

double ErrorMeasure::relative_l2() const {
  if (exact_squares == 0.0) {
    return error_squares == 0.0 ? 0.0 : std::numeric_limits<double>::infinity();
  }
  return std::sqrt(error_squares / exact_squares);
}

double ErrorMeasure::cosine() const {
  if (exact_squares == 0.0 && output_squares == 0.0) return 1.0;
  // Separate roots: the product of the squares may leave the range of double.
  const double norms = std::sqrt(exact_squares) * std::sqrt(output_squares);
  return norms == 0.0 ? 0.0 : products / norms;
}

double ErrorMeasure::exact_rms() const {
  return elements == 0 ? 0.0 : std::sqrt(exact_squares / static_cast<double>(elements));
}

ErrorMeasure measure_error(std::span<const double> output, std::span<const double> exact) {
  ErrorMeasure measure;
  measure.add(output, exact);
  return measure;
}

double root_mean_square(std::span<const double> values) {
  double squares = 0.0;
  for (const double x : values) squares += x * x;
  return values.empty() ? 0.0 : std::sqrt(squares / static_cast<double>(values.size()));
}

double quantile(std::span<const double> sorted, double share) {
  if (sorted.empty()) return 0.0;
  const double position = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double fraction = position - static_cast<double>(below);
  return sorted[below] + fraction * (sorted[above] - sorted[below]);
}

}  // namespace openvc::study
