// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/exact_attention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "numerics/contract.hpp"
#include "unit/cpu/test_tensor.hpp"

namespace openvc::cpu {
namespace {

using test::Random;
using test::Shape;
using test::TestTensor;

struct Inputs {
  TestTensor q;
  TestTensor k;
  TestTensor v;
};

void randomise(TestTensor& tensor, Random& random, float size) {
  tensor.fill([&](auto, auto, auto, auto) { return random.normal() * size; });
}

Inputs inputs(ElementType type, std::int64_t queries, std::int64_t keys, float size = 1.0f) {
  const std::int64_t d = numerics::kHeadDim;
  const Shape q{2, queries, 2, d};
  const Shape kv{2, keys, 2, d};
  // Q contiguous, K as [B, H, S, D] with padded rows, V with the tokens backwards.
  Inputs in{{type, q},
            {type, kv, {2 * keys * (d + 5), d + 5, keys * (d + 5), 1}},
            {type, kv, {keys * 2 * d, -2 * d, d, 1}}};
  Random random(9);
  randomise(in.q, random, size);
  randomise(in.k, random, size);
  randomise(in.v, random, 1.0f);
  return in;
}

struct Reference {
  std::vector<double> out;
  double log_sum_exp;
};

/// The definition, in extended precision.
Reference reference(const Inputs& in, std::int64_t b, std::int64_t h, std::int64_t row,
                    std::int64_t visible, double scale) {
  std::vector<long double> scores;
  for (std::int64_t key = 0; key < visible; ++key) {
    long double sum = 0;
    for (std::int64_t c = 0; c < numerics::kHeadDim; ++c) {
      sum += static_cast<long double>(in.q.get(b, row, h, c)) * in.k.get(b, key, h, c);
    }
    scores.push_back(sum * scale);
  }
  Reference result{std::vector<double>(numerics::kHeadDim),
                   -std::numeric_limits<double>::infinity()};
  if (visible == 0) return result;
  const long double maximum = *std::max_element(scores.begin(), scores.end());
  long double total = 0;
  for (long double& score : scores) total += score = std::exp(score - maximum);
  for (std::int64_t c = 0; c < numerics::kHeadDim; ++c) {
    long double sum = 0;
    for (std::int64_t key = 0; key < visible; ++key) {
      sum += scores[static_cast<std::size_t>(key)] * in.v.get(b, key, h, c);
    }
    result.out[static_cast<std::size_t>(c)] = static_cast<double>(sum / total);
  }
  result.log_sum_exp = static_cast<double>(maximum + std::log(total));
  return result;
}

void expect_exact(const Inputs& in, const std::vector<std::int64_t>& rows, Mask mask, double scale,
                  int threads = 2) {
  const std::int64_t queries = in.q.view().shape[kSequence];
  const std::int64_t keys = in.k.view().shape[kSequence];
  const std::size_t count = rows.size();
  std::vector<double> out(2 * count * 2 * numerics::kHeadDim, -7.0);
  std::vector<double> log_sums(2 * 2 * count, -7.0);
  ThreadPool pool(threads);
  exact_attention(in.q.view(), in.k.view(), in.v.view(), rows, out.data(), log_sums.data(), mask,
                  scale, pool);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t visible =
            mask == Mask::none ? keys
                               : std::clamp<std::int64_t>(rows[i] + 1 + keys - queries, 0, keys);
        const Reference expected = reference(in, b, h, rows[i], visible, scale);
        const std::size_t row = (static_cast<std::size_t>(b) * count + i) * 2 + h;
        for (std::size_t c = 0; c < numerics::kHeadDim; ++c) {
          ASSERT_NEAR(out[row * numerics::kHeadDim + c], expected.out[c], 1e-13)
              << "batch " << b << " head " << h << " row " << rows[i] << " channel " << c;
        }
        const double log_sum = log_sums[(static_cast<std::size_t>(b) * 2 + h) * count + i];
        if (visible == 0) {
          ASSERT_EQ(log_sum, expected.log_sum_exp);
        } else {
          ASSERT_NEAR(log_sum, expected.log_sum_exp, 1e-12 * (1.0 + std::fabs(log_sum)));
        }
      }
    }
  }
}

std::vector<std::int64_t> all_rows(std::int64_t queries) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(queries));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

TEST(ExactAttention, EveryElementTypeAndStride) {
  for (ElementType type : {ElementType::bfloat16, ElementType::float16, ElementType::float32}) {
    expect_exact(inputs(type, 70, 300), all_rows(70), Mask::none, 0.09);
  }
}

TEST(ExactAttention, SomeRowsInAnyOrder) {
  expect_exact(inputs(ElementType::bfloat16, 90, 129), {89, 0, 17, 17, 3}, Mask::none, 0.0884);
  expect_exact(inputs(ElementType::bfloat16, 90, 1), {5}, Mask::none, 0.0884);
}

TEST(ExactAttention, CausalWithMoreAndFewerKeysThanQueries) {
  expect_exact(inputs(ElementType::float32, 80, 80), all_rows(80), Mask::causal, 0.1);
  expect_exact(inputs(ElementType::float32, 80, 200), all_rows(80), Mask::causal, 0.1);
  expect_exact(inputs(ElementType::float32, 200, 80), all_rows(200), Mask::causal, 0.1);
}

TEST(ExactAttention, LargeScores) {
  expect_exact(inputs(ElementType::float32, 20, 300, 30.0f), all_rows(20), Mask::none, 1.0);
}

TEST(ExactAttention, BitsDoNotDependOnThreads) {
  const Inputs in = inputs(ElementType::bfloat16, 200, 300);
  const std::vector<std::int64_t> rows = all_rows(200);
  const auto run = [&](int threads) {
    std::vector<double> out(2 * 200 * 2 * numerics::kHeadDim);
    ThreadPool pool(threads);
    exact_attention(in.q.view(), in.k.view(), in.v.view(), rows, out.data(), nullptr, Mask::none,
                    0.1, pool);
    return out;
  };
  EXPECT_EQ(run(1), run(5));
}

TEST(ExactAttention, NanIsNotHidden) {
  Inputs in = inputs(ElementType::float32, 5, 300);
  in.k.set(1, 40, 0, 3, std::numeric_limits<float>::quiet_NaN());
  std::vector<double> out(2 * 5 * 2 * numerics::kHeadDim);
  ThreadPool pool(1);
  exact_attention(in.q.view(), in.k.view(), in.v.view(), all_rows(5), out.data(), nullptr,
                  Mask::none, 0.1, pool);
  const auto at = [&](std::size_t b, std::size_t s, std::size_t h) {
    return out[((b * 5 + s) * 2 + h) * numerics::kHeadDim];
  };
  EXPECT_TRUE(std::isnan(at(1, 2, 0)));
  EXPECT_FALSE(std::isnan(at(1, 2, 1)));
  EXPECT_FALSE(std::isnan(at(0, 2, 0)));
}

}  // namespace
}  // namespace openvc::cpu
