// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>

namespace openvc::study {

/// How far an output is from the exact one, as sums that can be merged over rows and heads.
struct ErrorMeasure {
  double error_squares = 0.0;
  double exact_squares = 0.0;
  double output_squares = 0.0;
  double products = 0.0;   // output times exact
  double max_error = 0.0;  // largest magnitude of a difference
  std::int64_t elements = 0;

  void add(std::span<const double> output, std::span<const double> exact);
  void merge(const ErrorMeasure& other);

  /// |output - exact| / |exact|; 0 if both vanish, infinity if only the exact output does.
  [[nodiscard]] double relative_l2() const;
  /// 1 if both vanish.
  [[nodiscard]] double cosine() const;
  /// Root mean square of the exact output.
  [[nodiscard]] double exact_rms() const;
};

[[nodiscard]] ErrorMeasure measure_error(std::span<const double> output,
                                         std::span<const double> exact);

/// Root of the mean square.
[[nodiscard]] double root_mean_square(std::span<const double> values);

/// Value below which `share` of the sorted values lie, interpolated; 0 for no values.
[[nodiscard]] double quantile(std::span<const double> sorted, double share);

}  // namespace openvc::study
