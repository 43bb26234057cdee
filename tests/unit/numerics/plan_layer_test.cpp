// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/plan_layer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "unit/numerics/sweep.hpp"

// Plans against an oracle: every choice tried, in float64, from the formulas of docs/numerics.md.
namespace openvc::numerics {
namespace {

using testing::Random;

constexpr double kScale = 0.08838834764831845;
constexpr double kCodeUnits = 11.541560327111707;  // per nat
constexpr double kRounding = 0.026;                // of an E4M3 number
constexpr int kChannels = 128;
constexpr int kChannelsPerStep = 16;

struct Layer {
  PlanRequest request;
  std::vector<HeadStatistics> heads;
};

/// Heads from white to a few strong channels, with offsets on K and V.
HeadStatistics random_head(Random& random, const PlanRequest& request) {
  HeadStatistics head;
  const double decay = random.uniform(0.0, 0.2);  // of the energy from channel to channel
  const double size = std::exp2(random.uniform(-2.0, 5.0));
  const double key_offset = random.below(2) == 0 ? 0.0 : random.uniform(-4.0, 4.0);
  double query_row = 0.0;
  double key_row = 0.0;
  for (int c = 0; c < kChannels; ++c) {
    const auto q = static_cast<float>(request.queries);
    const auto k = static_cast<float>(request.keys);
    const double spread = size * std::exp(-decay * c) * random.uniform(0.5, 1.5);
    head.scores.query_squares[c] = static_cast<float>(spread) * q;
    head.scores.key_sums[c] = static_cast<float>(key_offset) * k;
    head.scores.key_squares[c] = static_cast<float>(spread + key_offset * key_offset) * k;
    query_row += spread;
    key_row += spread + key_offset * key_offset;
    const double centre = random.below(3) == 0 ? random.uniform(-5.0, 5.0) : 0.01;
    const double reach = random.uniform(0.1, 3.0);
    head.values[c] = {static_cast<float>(centre) * k, static_cast<float>(centre + reach),
                      static_cast<float>(centre - reach)};
  }
  const auto extent = [](double row) {
    Extent result;
    result.magnitude_bits = float_bits(static_cast<float>(std::sqrt(row)));
    result.row_sum_squares = static_cast<float>(4.0 * row);
    return result;
  };
  head.scores.query = extent(query_row);
  head.scores.key = extent(key_row);
  if (random.below(2) == 0) {
    AxisShares& axes = head.scores.axes;
    axes.steps = request.numerics.max_extra_steps;
    for (int i = 0; i < kExtraStepChoices; ++i) {
      axes.query[i] = static_cast<float>(std::exp(-random.uniform(0.0, 3.0) * i));
      axes.key[i] = static_cast<float>(std::exp(-random.uniform(0.0, 3.0) * i));
    }
  }
  return head;
}

Layer random_layer(Random& random) {
  constexpr int kSteps[] = {0, 1, 2, 4};
  Layer layer;
  layer.request.queries = 1 + random.below(20'000);
  layer.request.keys = 1 + random.below(20'000);
  layer.request.softmax_scale = static_cast<float>(kScale);
  NumericOptions& options = layer.request.numerics;
  options.smooth_keys = random.below(4) != 0;
  options.smooth_values = random.below(4) != 0;
  options.max_extra_steps = kSteps[random.below(4)];
  options.score_error_target =
      static_cast<float>(random.below(3) == 0 ? 0.32 : random.uniform(0.0, 3.0));
  options.rotation = static_cast<Choice>(random.below(3));
  options.value_scale = random.below(2) == 0 ? ValueScale::per_channel : ValueScale::per_head;
  for (int i = 0; i < 4; ++i) layer.heads.push_back(random_head(random, layer.request));
  return layer;
}

/// What rounding leaves in a score for each choice, and what the choices cost.
struct Oracle {
  std::array<double, kChannels> products{};
  double rotated_variance = 0.0;
  std::array<double, 5> mixed_variance{};  // by steps; infinite without axes
  Choice rotation;

  Oracle(const HeadStatistics& head, const PlanRequest& request)
      : rotation(request.numerics.rotation) {
    const double gain = kCodeUnits * request.softmax_scale;
    const auto queries = static_cast<double>(request.queries);
    const auto keys = static_cast<double>(request.keys);
    double query_sum = 0.0;
    double key_sum = 0.0;
    for (int c = 0; c < kChannels; ++c) {
      const double mean = request.numerics.smooth_keys ? head.scores.key_sums[c] / keys : 0.0;
      const double query = gain * gain * head.scores.query_squares[c] / queries;
      const double key = std::max(0.0, head.scores.key_squares[c] / keys - mean * mean);
      products[c] = query * key;
      query_sum += query;
      key_sum += key;
    }
    rotated_variance = 2 * kRounding * kRounding * query_sum * key_sum / kChannels;
    std::sort(products.begin(), products.end(), std::greater<>());
    mixed_variance.fill(HUGE_VAL);
    constexpr std::array<std::size_t, 3> kSteps{1, 2, 4};
    for (std::size_t i = 0; i < kSteps.size(); ++i) {
      const AxisShares& axes = head.scores.axes;
      if (static_cast<std::size_t>(axes.steps) < kSteps[i]) break;
      const double columns = kChannels - static_cast<double>(kSteps[i]) * kChannelsPerStep;
      mixed_variance[kSteps[i]] = 2 * kRounding * kRounding * query_sum * axes.query[i + 1] *
                                  key_sum * axes.key[i + 1] / columns;
    }
  }

  /// Whether a number of steps is spent on axes; also of ones that the plan may not spend.
  [[nodiscard]] bool on_axes(int steps) const {
    const double mixed = mixed_variance[static_cast<std::size_t>(steps)];
    if (rotation == Choice::never || std::isinf(mixed)) return false;
    return rotation == Choice::always || mixed < 0.8 * channels_variance(steps);
  }

  [[nodiscard]] bool allows(int steps) const {
    return rotation != Choice::always || steps == 0 || on_axes(steps);
  }

  [[nodiscard]] double variance(int steps) const {
    return on_axes(steps) ? mixed_variance[static_cast<std::size_t>(steps)]
                          : channels_variance(steps);
  }

  [[nodiscard]] double channels_variance(int steps) const {
    double left = 0.0;
    for (int c = steps * kChannelsPerStep; c < kChannels; ++c) left += products[c];
    return 2 * kRounding * kRounding * left;
  }
};

TEST(PlanLayer, SpendsStepsAsTheOracleDoes) {
  Random random(1);
  int spent = 0;
  int on_axes = 0;
  for (int i = 0; i < 2'000; ++i) {
    const Layer layer = random_layer(random);
    const NumericOptions& options = layer.request.numerics;
    const auto plans = plan_layer(layer.heads, layer.request);
    ASSERT_EQ(plans.size(), layer.heads.size());
    for (std::size_t head = 0; head < plans.size(); ++head) {
      const ScorePlan& plan = plans[head].scores;
      const Oracle oracle(layer.heads[head], layer.request);
      const double price = options.score_error_target * options.score_error_target;
      const auto cost = [&](int steps) { return oracle.variance(steps) + price * steps; };
      const int limit = options.max_extra_steps;
      // No choice may be better than the plan's by more than rounding.
      for (const int steps : {0, 1, 2, 4}) {
        if (steps > limit || !oracle.allows(steps)) break;
        EXPECT_LE(cost(plan.extra_steps), cost(steps) * (1 + 1e-4) + 1e-6);
      }
      EXPECT_LE(plan.extra_steps, limit);
      EXPECT_TRUE(oracle.allows(plan.extra_steps));
      EXPECT_EQ(plan.axes != 0, oracle.on_axes(plan.extra_steps));
      on_axes += plan.axes;
      const double unrotated = oracle.variance(plan.extra_steps);
      if (plan.rotated != 0) {
        EXPECT_EQ(plan.extra_steps, 0);
        if (options.rotation == Choice::automatic) {
          EXPECT_LE(oracle.rotated_variance, 0.6 * unrotated * (1 + 1e-4));
        }
      } else if (plan.extra_steps == 0 && options.rotation == Choice::automatic) {
        EXPECT_GE(oracle.rotated_variance, 0.6 * unrotated * (1 - 1e-4));
      }
      EXPECT_EQ(plan.rotated != 0 && options.rotation == Choice::never, false);
      const double predicted = std::sqrt(plan.rotated != 0 ? oracle.rotated_variance : unrotated);
      EXPECT_NEAR(plans[head].score_rounding.error, predicted, 1e-3 * predicted + 1e-4);
      EXPECT_FLOAT_EQ(plans[head].score_rounding.cost,
                      0.125f * static_cast<float>(plan.extra_steps));
      spent += plan.extra_steps;
    }
  }
  EXPECT_GT(spent, 1'000) << "the sweep buys steps";
  EXPECT_GT(on_axes, 300) << "and axes";
}

TEST(PlanLayer, ScalesKeepEveryScoreInRange) {
  Random random(2);
  for (int i = 0; i < 500; ++i) {
    const Layer layer = random_layer(random);
    const auto plans = plan_layer(layer.heads, layer.request);
    for (std::size_t head = 0; head < plans.size(); ++head) {
      const HeadPlan& plan = plans[head];
      const double gain = kCodeUnits * kScale;
      // The product of the multipliers is the gain, but for the exponent that scores keep.
      EXPECT_NEAR(static_cast<double>(plan.scores.query_multiplier) * plan.scores.key_multiplier,
                  std::ldexp(gain, -plan.scores.score_exponent), 1e-5 * gain);
      double means = 0.0;
      for (const float mean : plan.key_means) means += double{mean} * mean;
      const double query = std::sqrt(layer.heads[head].scores.query.row_sum_squares);
      const double key =
          std::sqrt(static_cast<double>(layer.heads[head].scores.key.row_sum_squares)) +
          std::sqrt(means);
      EXPECT_LE(query * plan.scores.query_multiplier * key * plan.scores.key_multiplier,
                std::exp2(15.5) * 1.5);
    }
  }
}

TEST(PlanLayer, CodesOfVCoverEveryChannel) {
  Random random(3);
  for (int i = 0; i < 500; ++i) {
    const Layer layer = random_layer(random);
    const NumericOptions& options = layer.request.numerics;
    const auto plans = plan_layer(layer.heads, layer.request);
    for (std::size_t head = 0; head < plans.size(); ++head) {
      double widest = 0.0;
      std::array<double, kChannels> spreads{};
      for (int c = 0; c < kChannels; ++c) {
        const ChannelRange& range = layer.heads[head].values[c];
        const double size = std::max(std::fabs(range.max), std::fabs(range.min));
        const double mean = range.sum / static_cast<double>(layer.request.keys);
        const bool removed = options.smooth_values && std::fabs(mean) >= size / 16.0;
        EXPECT_NEAR(plans[head].value_means[c], removed ? mean : 0.0, 1e-4);
        const double subtracted = plans[head].value_means[c];
        spreads[c] = std::max(range.max - subtracted, subtracted - range.min);
        widest = std::max(widest, spreads[c]);
      }
      for (int c = 0; c < kChannels; ++c) {
        const double spread = options.value_scale == ValueScale::per_head ? widest : spreads[c];
        EXPECT_NEAR(plans[head].value_scales[c], spread / 448.0, 1e-6 * spread);
        EXPECT_NEAR(plans[head].value_multipliers[c] * spread, 448.0, 1e-3);
      }
      EXPECT_FLOAT_EQ(plans[head].value_rounding.error, 0.026f);
    }
  }
}

TEST(PlanLayer, HeadsAreNarrowWhereNoScoreCanExceedTheLimit) {
  // Judged by the exact Cauchy-Schwarz bound of what the statistics allow. The plan's bound of
  // |k - mean| is at most 1.5 times as large.
  Random random(4);
  int narrow = 0;
  int wide = 0;
  for (int i = 0; i < 500; ++i) {
    const Layer layer = random_layer(random);
    const std::vector<HeadPlan> plans = plan_layer(layer.heads, layer.request);
    for (std::size_t head = 0; head < plans.size(); ++head) {
      const ScoreStatistics& scores = layer.heads[head].scores;
      double mean_squares = 0.0;
      for (const float mean : plans[head].key_means) mean_squares += double{mean} * mean;
      const double key = std::sqrt(double{scores.key.row_sum_squares}) + std::sqrt(mean_squares);
      const double bound = 8.0 / std::log(2.0) * double{layer.request.softmax_scale} *
                           std::sqrt(double{scores.query.row_sum_squares}) * key;
      if (plans[head].rule().wide()) {
        ++wide;
        EXPECT_GT(1.5 * bound, double{kNarrowScoreLimit});
      } else {
        ++narrow;
        EXPECT_LE(bound, 1.0001 * double{kNarrowScoreLimit});
        EXPECT_EQ(plans[head].scores.score_exponent, 0);
      }
    }
  }
  EXPECT_GT(narrow, 100);
  EXPECT_GT(wide, 100);
}

TEST(PlanLayer, ManyKeysMakeEveryHeadWide) {
  Random random(5);
  Layer layer = random_layer(random);
  for (HeadStatistics& head : layer.heads) {
    head.scores.query.row_sum_squares = head.scores.key.row_sum_squares = 1.0f;
    head.scores.query.magnitude_bits = head.scores.key.magnitude_bits = float_bits(1.0f);
    std::fill_n(head.scores.key_sums, kChannels, 0.0f);
  }
  layer.request.keys = kNarrowMaxKeys;
  for (const HeadPlan& plan : plan_layer(layer.heads, layer.request))
    EXPECT_FALSE(plan.rule().wide());
  ++layer.request.keys;
  for (const HeadPlan& plan : plan_layer(layer.heads, layer.request))
    EXPECT_TRUE(plan.rule().wide());
}

/// Half of the channels, each with the energy of two: scores and their error are the same.
TEST(PlanLayer, IsATemplateOverTheHeadDimension) {
  constexpr int kHalf = kChannels / 2;
  HeadStatisticsOf<kChannels> full;
  HeadStatisticsOf<kHalf> half;
  const PlanRequest request{
      .queries = 100, .keys = 100, .softmax_scale = static_cast<float>(kScale)};
  for (int c = 0; c < kChannels; ++c) {
    const float energy = c < 20 ? 8.0f : 0.01f;
    full.scores.query_squares[c] = full.scores.key_squares[c] = 100.0f * energy;
    if (c < kHalf) half.scores.query_squares[c] = half.scores.key_squares[c] = 100.0f * energy;
  }
  const auto set = [](auto& head) {
    head.scores.query.magnitude_bits = head.scores.key.magnitude_bits = float_bits(4.0f);
    head.scores.query.row_sum_squares = head.scores.key.row_sum_squares = 200.0f;
  };
  set(full);
  set(half);
  const HeadPlanOf<kChannels> a = plan_head(full, request);
  const HeadPlanOf<kHalf> b = plan_head(half, request);
  ASSERT_GT(a.scores.extra_steps, 0);
  EXPECT_EQ(a.scores.extra_steps, b.scores.extra_steps);
  EXPECT_EQ(std::memcmp(a.residual_channels, b.residual_channels, sizeof(a.residual_channels)), 0);
  EXPECT_FLOAT_EQ(2.0f * a.score_rounding.cost, b.score_rounding.cost)
      << "a step of 32 columns is a larger share of a smaller head";
}

TEST(PlanLayer, HeadsDoNotDependOnTheirNeighbours) {
  Random random(5);
  const Layer layer = random_layer(random);
  const auto together = plan_layer(layer.heads, layer.request);
  for (std::size_t head = 0; head < layer.heads.size(); ++head) {
    const auto alone = plan_layer({&layer.heads[head], 1}, layer.request);
    EXPECT_EQ(std::memcmp(&alone[0], &together[head], sizeof(HeadPlan)), 0) << head;
  }
  EXPECT_TRUE(plan_layer({}, layer.request).empty());
}

}  // namespace
}  // namespace openvc::numerics
