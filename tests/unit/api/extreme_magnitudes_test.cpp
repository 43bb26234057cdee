// SPDX-License-Identifier: BSD-3-Clause
// Inputs of every magnitude that the element types hold, against float64 attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "numerics/half.hpp"
#include "openvc/attention.hpp"
#include "unit/cpu/test_tensor.hpp"

namespace openvc {
namespace {

using test::Random;
using test::TestTensor;

constexpr std::int64_t kD = 128;

struct Inputs {
  Inputs(ElementType type, std::int64_t heads, std::int64_t queries, std::int64_t keys)
      : q(type, {1, queries, heads, kD}),
        k(type, {1, keys, heads, kD}),
        v(type, {1, keys, heads, kD}) {}

  TestTensor q;
  TestTensor k;
  TestTensor v;
};

struct Rows {
  std::vector<double> out;          // [S, H, D]
  std::vector<double> log_sum_exp;  // [H, S]
};

Rows run(const Inputs& in, const AttentionOptions& options) {
  const auto shape = in.q.view().shape;
  TestTensor out(in.q.view().type, shape);
  std::vector<float> lse(static_cast<std::size_t>(shape[kSequence] * shape[kHead]), -7.0f);
  attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view(), lse.data(), options);
  Rows rows;
  rows.log_sum_exp.assign(lse.begin(), lse.end());
  out.for_each([&](auto b, auto s, auto h, auto c) {
    rows.out.push_back(static_cast<double>(out.get(b, s, h, c)));
  });
  return rows;
}

Rows exact(const Inputs& in, const AttentionOptions& options) {
  const auto shape = in.q.view().shape;
  std::vector<std::int64_t> queries(static_cast<std::size_t>(shape[kSequence]));
  for (std::size_t i = 0; i < queries.size(); ++i) queries[i] = static_cast<std::int64_t>(i);
  Rows rows;
  rows.out.resize(queries.size() * static_cast<std::size_t>(shape[kHead] * kD));
  rows.log_sum_exp.resize(queries.size() * static_cast<std::size_t>(shape[kHead]));
  exact_attention(in.q.view(), in.k.view(), in.v.view(), queries, rows.out.data(),
                  rows.log_sum_exp.data(), options.mask, options.softmax_scale);
  return rows;
}

double norm(const TestTensor& tensor, std::int64_t row, std::int64_t head) {
  double sum = 0.0;
  for (std::int64_t c = 0; c < kD; ++c) {
    const double x = tensor.get(0, row, head, c);
    sum += x * x;
  }
  return std::sqrt(sum);
}

double largest_norm(const TestTensor& tensor, std::int64_t head) {
  double largest = 0.0;
  for (std::int64_t row = 0; row < tensor.view().shape[kSequence]; ++row) {
    largest = std::max(largest, norm(tensor, row, head));
  }
  return largest;
}

/// The log-sum-exp may miss by the rounding of E4M3: a share of |q| |k| for what rounding to three
/// mantissa bits does to both factors, and a share of the head's largest |q| |k| for elements so
/// much smaller than the largest that they vanish; and by what the codes of probabilities leave.
void expect_log_sum_exp(const Inputs& in, const Rows& actual, const Rows& expected, double scale) {
  // Two roundings of at most 2^-4, and the binary16 of the score.
  constexpr double kRelative = 2 * 0x1p-4 + 0x1p-8;
  constexpr double kVanishing = 0x1p-12;
  constexpr double kNats = 0.1;
  const auto shape = in.q.view().shape;
  for (std::int64_t h = 0; h < shape[kHead]; ++h) {
    // Removing the mean of K at most doubles the largest norm.
    const double key = 2.0 * largest_norm(in.k, h);
    const double head = scale * largest_norm(in.q, h) * key;
    for (std::int64_t s = 0; s < shape[kSequence]; ++s) {
      const auto row = static_cast<std::size_t>(h * shape[kSequence] + s);
      const double a = actual.log_sum_exp[row];
      const double e = expected.log_sum_exp[row];
      SCOPED_TRACE(testing::Message()
                   << "head " << h << " query " << s << ": " << a << ", exact " << e);
      ASSERT_FALSE(std::isnan(a));
      const double bound = kNats + kRelative * scale * norm(in.q, s, h) * key + kVanishing * head;
      if (e == -std::numeric_limits<double>::infinity()) {
        ASSERT_EQ(a, e);
        continue;
      }
      const double limit = static_cast<double>(std::numeric_limits<float>::max());
      if (std::isinf(a)) {
        // Only where the exact result is beyond binary32, within the bound.
        ASSERT_GE(std::fabs(e) + bound, limit);
        if (bound < std::fabs(e)) {
          ASSERT_EQ(a > 0, e > 0);
        }
      } else {
        ASSERT_LE(std::fabs(a - e), bound);
      }
    }
  }
}

AttentionOptions scaled(float softmax_scale, Mask mask = Mask::none) {
  AttentionOptions options;
  options.softmax_scale = softmax_scale;
  options.mask = mask;
  return options;
}

void expect_close(const Inputs& in, const AttentionOptions& options) {
  expect_log_sum_exp(in, run(in, options), exact(in, options),
                     static_cast<double>(*options.softmax_scale));
}

/// Sizes of Q and K whose scores are about 10^power nats: equal, and all in one of the factors.
struct Sizes {
  float q;
  float k;
  float softmax_scale;
};

std::vector<Sizes> sizes_of(int power) {
  const auto root = static_cast<float>(std::pow(10.0, power / 2.0));
  const auto whole = static_cast<float>(std::pow(10.0, power));
  constexpr float kScale = 0.0883883461f;
  return {{root, root, kScale}, {whole, 1.0f, kScale},        {1.0f, whole, kScale},
          {1.0f, 1.0f, whole},  {root, 1e-10f, root * 1e10f}, {whole, 1e8f, 1e-8f}};
}

TEST(ExtremeLogSumExp, FollowsTheScoresOverAllPowersOfTen) {
  for (const ElementType type : {ElementType::float32, ElementType::bfloat16}) {
    for (int power = -6; power <= 36; power += 3) {
      for (const Sizes& sizes : sizes_of(power)) {
        SCOPED_TRACE(testing::Message() << element_name(type) << " 10^" << power << ": " << sizes.q
                                        << ' ' << sizes.k << ' ' << sizes.softmax_scale);
        Inputs in(type, 1, 20, 150);
        in.q.fill_normal(1, sizes.q);
        in.k.fill_normal(2, sizes.k);
        in.v.fill_normal(3);
        expect_close(in, scaled(sizes.softmax_scale));
      }
    }
  }
}

/// Cross-attention of three heads, of which the middle one is extreme; a mean on K; causal rows.
TEST(ExtremeLogSumExp, HeadsOfOneCallAndMeansOfK) {
  Random random(7);
  for (const double power : {0.0, 12.0, 14.0, 20.0, 30.0}) {
    for (const float mean : {0.0f, 3.0f, -1000.0f}) {
      for (const Mask mask : {Mask::none, Mask::causal}) {
        SCOPED_TRACE(testing::Message() << "10^" << power << " mean " << mean);
        Inputs in(ElementType::bfloat16, 3, 90, 40);
        const auto size = static_cast<float>(std::pow(10.0, power / 2.0));
        in.q.fill(
            [&](auto, auto, auto h, auto) { return (h == 1 ? size : 1.0f) * random.normal(); });
        in.k.fill([&](auto, auto, auto h, auto c) {
          return (h == 1 ? size : 1.0f) * (random.normal() + (c % 3 == 0 ? mean : 0.0f));
        });
        in.v.fill_normal(3);
        expect_close(in, scaled(0.0883883461f, mask));
      }
    }
  }
}

/// Rows of one head whose norms differ: small rows keep what E4M3 leaves of them, rows of zeros
/// keep the logarithm of the number of keys.
TEST(ExtremeLogSumExp, RowsOfOneHead) {
  for (const float size : {1.0f, 1e8f, 1e16f, 1e18f}) {
    SCOPED_TRACE(size);
    Inputs in(ElementType::float32, 1, 12, 200);
    Random random(8);
    in.q.fill([&](auto, auto s, auto, auto) {
      return s == 0 ? 0.0f : size * std::ldexp(random.normal(), -3 * static_cast<int>(s));
    });
    in.k.fill_normal(2, size);
    in.v.fill_normal(3);
    expect_close(in, scaled(0.0883883461f));
    const Rows rows = run(in, scaled(0.0883883461f));
    EXPECT_NEAR(rows.log_sum_exp[0], std::log(200.0), 0.1);
  }
}

TEST(ExtremeLogSumExp, SumsOfTheMeanThatLeaveBinary32OnTheWay) {
  // |q.mean| is beyond 2^128, softmax_scale q.mean is not.
  Inputs in(ElementType::float32, 1, 5, 100);
  in.q.fill_normal(1, 1e25f);
  Random random(4);
  in.k.fill([&](auto...) { return 1e15f * (10.0f + random.normal()); });
  in.v.fill_normal(3);
  for (const float scale : {kSmallestSoftmaxScale, 1e-36f, 1e-30f, 1e-20f, 1e-5f}) {
    SCOPED_TRACE(scale);
    expect_close(in, scaled(scale));
  }
}

TEST(ExtremeLogSumExp, BeyondBinary32ItIsInfinite) {
  for (const float sign : {1.0f, -1.0f}) {
    for (const float size : {1e20f, 1e30f, numerics::kBfloat16Max}) {
      for (const bool smooth : {false, true}) {
        Inputs in(ElementType::float32, 1, 3, 10);
        in.q.fill([&](auto...) { return size; });
        in.k.fill([&](auto...) { return sign * size; });
        in.v.fill_normal(3);
        AttentionOptions options = scaled(1.0f);
        options.numerics.smooth_keys = smooth;
        for (const double lse : run(in, options).log_sum_exp) {
          EXPECT_EQ(lse, static_cast<double>(sign) * std::numeric_limits<double>::infinity());
        }
      }
    }
  }
}

/// One tensor of a random shape of data: a size, and where its elements differ from it.
void fill_extreme(TestTensor& tensor, Random& random) {
  constexpr float kSizes[] = {0.0f,
                              0x1p-149f,
                              0x1p-133f,
                              0x1p-126f,
                              1e-30f,
                              1.0f,
                              1e4f,
                              1e30f,
                              numerics::kBfloat16Max,
                              std::numeric_limits<float>::max()};
  const auto pick = [&](std::size_t count) { return random.next() % count; };
  const float largest = tensor.view().type == ElementType::float16    ? numerics::kHalfMax
                        : tensor.view().type == ElementType::bfloat16 ? numerics::kBfloat16Max
                                                                      : kSizes[9];
  const float size = std::min(kSizes[pick(std::size(kSizes))], largest);
  const float other = std::min(kSizes[pick(std::size(kSizes))], largest);
  const auto pattern = pick(6);
  const auto token = static_cast<std::int64_t>(pick(5));
  const auto channel = static_cast<std::int64_t>(pick(kD));
  tensor.fill([&](auto, std::int64_t s, auto, std::int64_t c) {
    const float sign = random.next() % 2 == 0 ? 1.0f : -1.0f;
    switch (pattern) {
      case 0:
        return size;
      case 1:
        return sign * size;
      case 2:
        return c == channel ? size : 0.0f;
      case 3:
        return s == token ? size : sign * other;
      case 4:
        return s == token && c == channel ? -size : 0.0f;
      default:
        return std::clamp(size * random.normal(), -largest, largest);
    }
  });
}

TEST(ExtremeMagnitudes, FiniteInputsNeverGiveNan) {
  constexpr float kScales[] = {kSmallestSoftmaxScale, 1e-30f, 1e-20f, 0.0883883461f, 1.0f, 1e20f,
                               kLargestSoftmaxScale};
  constexpr ElementType kTypes[] = {ElementType::float32, ElementType::bfloat16,
                                    ElementType::float16};
  Random random(11);
  for (int trial = 0; trial < 1500; ++trial) {
    const auto pick = [&](std::size_t count) { return random.next() % count; };
    Inputs in(kTypes[pick(3)], 1, 6, 9);
    for (TestTensor* tensor : {&in.q, &in.k, &in.v}) fill_extreme(*tensor, random);
    AttentionOptions options =
        scaled(kScales[pick(std::size(kScales))], pick(2) == 0 ? Mask::none : Mask::causal);
    options.numerics.smooth_keys = pick(4) != 0;
    options.numerics.smooth_values = pick(4) != 0;
    options.numerics.rotation = static_cast<Choice>(pick(3));
    options.numerics.value_scale = static_cast<ValueScale>(pick(2));
    SCOPED_TRACE(testing::Message()
                 << trial << ": " << element_name(in.q.view().type) << " q " << in.q.get(0, 0, 0, 0)
                 << " k " << in.k.get(0, 0, 0, 0) << " v " << in.v.get(0, 0, 0, 0) << " scale "
                 << *options.softmax_scale);
    double largest = 0.0;
    in.v.for_each([&](auto b, auto s, auto h, auto c) {
      largest = std::max(largest, std::fabs(static_cast<double>(in.v.get(b, s, h, c))));
    });
    const Rows actual = run(in, options);
    // A weighted mean stays within the values, up to the rounding of the values and a mean.
    for (const double x : actual.out) ASSERT_LE(std::fabs(x), 1.2 * largest);
    for (const double x : actual.log_sum_exp) ASSERT_FALSE(std::isnan(x));
    const Rows expected = exact(in, options);
    for (const double x : expected.out) ASSERT_TRUE(std::isfinite(x));
    for (const double x : expected.log_sum_exp) ASSERT_FALSE(std::isnan(x));
  }
}

}  // namespace
}  // namespace openvc
