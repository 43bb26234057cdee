// SPDX-License-Identifier: BSD-3-Clause
#include "study/error_measure.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

namespace openvc::study {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(ErrorMeasure, HandMadeExample) {
  const std::array exact = {3.0, 4.0};
  const std::array output = {3.0, 3.0};
  const ErrorMeasure measure = measure_error(output, exact);
  EXPECT_DOUBLE_EQ(measure.relative_l2(), 0.2);
  EXPECT_DOUBLE_EQ(measure.cosine(), 21.0 / (5.0 * std::sqrt(18.0)));
  EXPECT_DOUBLE_EQ(measure.max_error, 1.0);
  EXPECT_DOUBLE_EQ(measure.exact_rms(), 5.0 / std::sqrt(2.0));
}

TEST(ErrorMeasure, MergingEqualsMeasuringTogether) {
  const std::array exact = {1.0, -2.0, 3.0, 0.5};
  const std::array output = {1.5, -2.0, 2.0, 0.0};
  ErrorMeasure parts = measure_error(std::span(output).first(1), std::span(exact).first(1));
  parts.merge(measure_error(std::span(output).subspan(1), std::span(exact).subspan(1)));
  const ErrorMeasure whole = measure_error(output, exact);
  EXPECT_DOUBLE_EQ(parts.relative_l2(), whole.relative_l2());
  EXPECT_DOUBLE_EQ(parts.max_error, whole.max_error);
  EXPECT_EQ(parts.elements, whole.elements);
}

TEST(ErrorMeasure, NothingAndZeros) {
  EXPECT_EQ(ErrorMeasure{}.relative_l2(), 0.0);
  EXPECT_EQ(ErrorMeasure{}.cosine(), 1.0);
  const std::array zero = {0.0};
  const std::array one = {1.0};
  EXPECT_EQ(measure_error(zero, zero).relative_l2(), 0.0);
  EXPECT_TRUE(std::isinf(measure_error(one, zero).relative_l2()));
  EXPECT_EQ(measure_error(one, zero).cosine(), 0.0);
}

TEST(ErrorMeasure, ANanStaysVisible) {
  const std::array exact = {1.0, 1.0, 1.0};
  const std::array output = {1.0, kNan, 2.0};
  ErrorMeasure measure = measure_error(output, exact);
  EXPECT_TRUE(std::isnan(measure.relative_l2()));
  EXPECT_TRUE(std::isnan(measure.max_error));
  measure.merge(measure_error(exact, exact));
  EXPECT_TRUE(std::isnan(measure.max_error));
}

TEST(ErrorMeasure, HugeNumbersKeepTheirCosine) {
  const std::array exact = {1e150, 1e150};
  EXPECT_NEAR(measure_error(exact, exact).cosine(), 1.0, 1e-15);
}

TEST(Quantile, InterpolatesBetweenNeighbours) {
  const std::array sorted = {0.0, 10.0, 20.0};
  EXPECT_EQ(quantile(sorted, 0.0), 0.0);
  EXPECT_EQ(quantile(sorted, 0.25), 5.0);
  EXPECT_EQ(quantile(sorted, 1.0), 20.0);
  EXPECT_EQ(quantile({}, 0.5), 0.0);
}

}  // namespace
}  // namespace openvc::study
