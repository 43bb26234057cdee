// SPDX-License-Identifier: BSD-3-Clause
//
// Heads of fewer than 128 channels, and heads of Q that share K and V.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <vector>

#include "openvc/attention.hpp"
#include "unit/cpu/test_tensor.hpp"

namespace openvc {
namespace {

using test::Shape;
using test::TestTensor;

struct Inputs {
  Inputs(ElementType type, std::int64_t head_dim, std::int64_t heads = 2,
         std::int64_t key_heads = 2, std::int64_t queries = 140, std::int64_t keys = 300)
      : q(type, {2, queries, heads, head_dim}),
        k(type, {2, keys, key_heads, head_dim}),
        v(type, {2, keys, key_heads, head_dim}) {
    q.fill_normal(1);
    k.fill_normal(2);
    v.fill_normal(3);
  }

  [[nodiscard]] TestTensor attend(float* log_sum_exp = nullptr,
                                  const AttentionOptions& options = {}) const {
    TestTensor out(q.view().type, q.view().shape);
    attention(q.view(), k.view(), v.view(), out.mutable_view(), log_sum_exp, options);
    EXPECT_TRUE(out.surroundings_untouched());
    return out;
  }

  TestTensor q;
  TestTensor k;
  TestTensor v;
};

/// Output and log-sum-exp of all queries in double precision.
struct Exact {
  explicit Exact(const Inputs& in) {
    const Shape shape = in.q.view().shape;
    std::vector<std::int64_t> rows(static_cast<std::size_t>(shape[kSequence]));
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    out.resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]));
    logs.resize(static_cast<std::size_t>(shape[0] * shape[1] * shape[2]));
    exact_attention(in.q.view(), in.k.view(), in.v.view(), rows, out.data(), logs.data());
  }

  [[nodiscard]] double relative_error(const TestTensor& found) const {
    double error = 0.0;
    double norm = 0.0;
    std::size_t i = 0;
    found.for_each([&](auto b, auto s, auto h, auto c) {
      const double difference = found.get(b, s, h, c) - out[i];
      error += difference * difference;
      norm += out[i] * out[i];
      ++i;
    });
    return std::sqrt(error / norm);
  }

  std::vector<double> out;
  std::vector<double> logs;
};

class AllHeadSizes : public testing::TestWithParam<std::tuple<std::int64_t, ElementType>> {};

TEST_P(AllHeadSizes, ComeCloseToExactAttention) {
  const auto [head_dim, type] = GetParam();
  const Inputs in(type, head_dim);
  std::vector<float> logs(2 * 2 * 140);
  const TestTensor out = in.attend(logs.data());
  const Exact exact(in);
  EXPECT_LT(exact.relative_error(out), 0.06);  // docs/numerics.md section 9
  for (std::size_t i = 0; i < logs.size(); ++i) EXPECT_NEAR(logs[i], exact.logs[i], 0.1) << i;
}

INSTANTIATE_TEST_SUITE_P(, AllHeadSizes,
                         testing::Combine(testing::Values(8, 16, 40, 64, 72, 80, 96, 112, 120),
                                          testing::Values(ElementType::bfloat16,
                                                          ElementType::float32)));

TEST(HeadSizes, ValuesKeepWhatRoundingLeavesWhereChannelsAreSpare) {
  AttentionOptions options;
  options.numerics.value_scale = ValueScale::per_head;
  options.numerics.smooth_values = false;
  for (const std::int64_t head_dim : {8, 64, 80, 112}) {
    const Inputs in(ElementType::float32, head_dim, 1, 1, 1, 1);
    const TestTensor out = in.attend(nullptr, options);
    for (std::int64_t c = 0; c < head_dim; ++c) {
      const double value = in.v.get(0, 0, 0, c);
      const double error = std::fabs(out.get(0, 0, 0, c) - value) / std::fabs(value);
      // E4M3 leaves up to 2^-4; of that again, or the smallest code.
      const bool spare = c < 64 && c + 64 >= head_dim;
      if (spare) {
        EXPECT_LT(error, 0x1p-8 + 0x1p-18 * 448 / std::fabs(value)) << head_dim << ' ' << c;
      }
    }
  }
}

TEST(HeadSizes, PaddedRowsDoNotReachIntoNeighbours) {
  // Heads lie beside each other: an element too many would be one of the next head.
  for (const std::int64_t head_dim : {16, 80}) {
    const Inputs in(ElementType::bfloat16, head_dim, 3, 3);
    const TestTensor whole = in.attend();
    for (std::int64_t h = 0; h < 3; ++h) {
      Inputs one(ElementType::bfloat16, head_dim, 1, 1);
      one.q.fill([&](auto b, auto s, auto, auto c) { return in.q.get(b, s, h, c); });
      one.k.fill([&](auto b, auto s, auto, auto c) { return in.k.get(b, s, h, c); });
      one.v.fill([&](auto b, auto s, auto, auto c) { return in.v.get(b, s, h, c); });
      const TestTensor out = one.attend();
      out.for_each([&](auto b, auto s, auto, auto c) {
        ASSERT_EQ(out.get(b, s, 0, c), whole.get(b, s, h, c));
      });
    }
  }
}

TEST(HeadSizes, RepairBringsTheResidualsItself) {
  const Inputs in(ElementType::bfloat16, 64);
  const Prepared prepared = prepare_repair(in.q.view(), in.k.view(), in.v.view(), 0.1);
  TestTensor out(ElementType::bfloat16, in.q.view().shape);
  attention_prepared(prepared, out.mutable_view());
  EXPECT_LT(Exact(in).relative_error(out), 0.06);
  EXPECT_EQ(prepared.query_shape(), in.q.view().shape);
  EXPECT_EQ(prepared.key_shape(), in.k.view().shape);
}

TEST(GroupedQueries, EqualRepeatedHeads) {
  for (const std::int64_t key_heads : {1, 2, 3}) {
    const Inputs in(ElementType::bfloat16, 64, 6, key_heads);
    Inputs repeated(ElementType::bfloat16, 64, 6, 6);
    const std::int64_t group = 6 / key_heads;
    repeated.k.fill([&](auto b, auto s, auto h, auto c) { return in.k.get(b, s, h / group, c); });
    repeated.v.fill([&](auto b, auto s, auto h, auto c) { return in.v.get(b, s, h / group, c); });
    std::vector<float> logs(2 * 6 * 140);
    std::vector<float> repeated_logs(logs.size());
    EXPECT_EQ(in.attend(logs.data()).bytes(), repeated.attend(repeated_logs.data()).bytes());
    EXPECT_EQ(logs, repeated_logs);
    EXPECT_EQ(Exact(in).out, Exact(repeated).out);
    EXPECT_EQ(prepare(in.q.view(), in.k.view(), in.v.view()).key_shape(), in.k.view().shape);
  }
}

}  // namespace
}  // namespace openvc
