// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "numerics/e4m3.hpp"
#include "numerics/exp_cast.hpp"

// The figures that the documentation gives for ExpCast, recomputed from the functions themselves.
//
// A score x in code units (after the offset) stands for the probability 2^((x - 56) / 8). The ratio
// r(x) = decoded(code(x)) / 2^((x - 56) / 8) is the factor by which ExpCast changes it. All
// averages are over x uniform in one octave of normal codes. A constant factor cancels in the
// normalisation, so errors are relative to the mean ratio.
namespace openvc::numerics {
namespace {

constexpr double kOctaveStart = 64.0;
constexpr int kSteps = 1 << 20;  // midpoints per octave; a multiple of 16 keeps them off the ties

double exact_probability(double x) { return std::exp2((x - kUnitCode) / 8.0); }

/// Byte by the contract. Scores carry a sign and an offset as in a row whose maximum is 20.
double exp_cast_value(double x) {
  constexpr float kOffset = 100.0f;
  return static_cast<double>(
      e4m3_decode(exp_cast(static_cast<float>(x - static_cast<double>(kOffset)), kOffset)));
}

/// What an exponential and a conversion give for the same score.
double rounded_exponential(double x) {
  return static_cast<double>(e4m3_decode(e4m3_encode(static_cast<float>(exact_probability(x)))));
}

double mean(double begin, double end, const std::function<double(double)>& f) {
  long double sum = 0.0L;
  for (int i = 0; i < kSteps; ++i) {
    sum += f(begin + (end - begin) * (i + 0.5) / kSteps);
  }
  return static_cast<double>(sum / kSteps);
}

double octave_mean(const std::function<double(double)>& f) {
  return mean(kOctaveStart, kOctaveStart + 8.0, f);
}

double ratio(double x) { return exp_cast_value(x) / exact_probability(x); }

/// Relative RMS of a ratio about its mean.
double relative_rms(const std::function<double(double)>& r) {
  const double centre = octave_mean(r);
  return std::sqrt(octave_mean([&](double x) { return std::pow(r(x) / centre - 1.0, 2); }));
}

struct Range {
  double low;
  double high;
};

Range octave_range(const std::function<double(double)>& r) {
  Range range{1e9, 0.0};
  for (int i = 0; i < kSteps; ++i) {
    const double value = r(kOctaveStart + 8.0 * (i + 0.5) / kSteps);
    range = {std::min(range.low, value), std::max(range.high, value)};
  }
  return range;
}

/// Largest total variation between a distribution p and the one proportional to p r, for ratios in
/// [low, high]: reached when all mass sits at the two ends (derivative of q (1 - q) (high - low) /
/// (low + q (high - low)) set to zero).
double worst_total_variation(const Range& r) {
  const double low = std::sqrt(r.low);
  const double high = std::sqrt(r.high);
  return (high - low) / (high + low);
}

TEST(ExpCastStatistics, MeanRatioIsThatOfTheAnchor) {
  // Weights are divided by that of the block's largest score, which has the peak code: for tops
  // uniform in a code unit its ratio is 448 / 2^((x - 56) / 8) averaged over x in 126 +- 1/2. That
  // the two means agree is why sums of codes, the denominator and the log-sum-exp, have no bias.
  const double found = octave_mean(ratio);
  EXPECT_NEAR(found, 1.04036, 5e-6);
  const double anchor = mean(kPeakCode - 0.5, kPeakCode + 0.5, [](double x) {
    return static_cast<double>(kE4m3Max) / exact_probability(x);
  });
  EXPECT_NEAR(std::log(found / anchor), -0.0005, 1e-5);

  // The same in closed form: code c serves x in [c - 1/2, c + 1/2].
  long double sum = 0.0L;
  for (int c = 0; c < 8; ++c) {
    const long double inverse_integral =
        8.0L / std::log(2.0L) * (std::exp2((0.5L - c) / 8.0L) - std::exp2((-0.5L - c) / 8.0L));
    sum += (1.0L + c / 8.0L) * inverse_integral;
  }
  EXPECT_NEAR(std::log(found), static_cast<double>(std::log(sum / 8.0L)), 1e-6);
}

TEST(ExpCastStatistics, RelativeErrors) {
  EXPECT_NEAR(relative_rms(ratio), 0.0314, 5e-5);
  const Range range = octave_range(ratio);
  const double centre = octave_mean(ratio);
  EXPECT_NEAR(range.low / centre - 1.0, -0.0795, 1e-4);
  EXPECT_NEAR(range.high / centre - 1.0, 0.0647, 1e-4);
  EXPECT_NEAR(relative_rms([](double x) { return rounded_exponential(x) / exact_probability(x); }),
              0.0265, 5e-5);
}

TEST(ExpCastStatistics, WorstTotalVariation) {
  EXPECT_NEAR(worst_total_variation(octave_range(ratio)), 0.0364, 5e-5);
}

TEST(ExpCastStatistics, AgreesWithTheRoundedExponential) {
  // The paper adds beta = -0.35 to the code, which centres the two roundings on each other. The
  // contract keeps its offsets integers and leaves that constant factor, 2^(0.35 / 8), to the
  // normalisation; the comparison has to apply it to the exponential.
  const auto agreement = [](double beta) {
    return octave_mean(
        [&](double x) { return exp_cast_value(x) == rounded_exponential(x - beta) ? 1.0 : 0.0; });
  };
  EXPECT_NEAR(agreement(-0.35), 0.796, 5e-4);
  EXPECT_NEAR(agreement(0.0), 0.538, 5e-4);
}

TEST(ExpCastStatistics, SubnormalCodesLoseAThirdOfTheirMass) {
  // Codes 0..8, weights below 2^-6 / 448 of the block's largest: ratio of the mass that ExpCast
  // keeps. In version 1 they were relative to the row's largest and this mass mattered.
  const double kept = mean(0.0, 8.0, [](double x) {
    return static_cast<double>(e4m3_decode(exp_cast(static_cast<float>(x), 0.0f))) /
           exact_probability(x);
  });
  EXPECT_NEAR(kept, 0.638, 0.001);
  EXPECT_EQ(exp_cast(0.5f, 0.0f), 0);
  EXPECT_EQ(exp_cast(0.51f, 0.0f), 1);
}

}  // namespace
}  // namespace openvc::numerics
