// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/attention.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "cpu/attention_kernel.hpp"
#include "numerics/half.hpp"
#include "schedule/mask.hpp"
#include "unit/cpu/random_prepared.hpp"
#include "unit/cpu/reference_attention.hpp"

namespace openvc::cpu {
namespace {

using numerics::kHeadDim;
using schedule::Problem;
using testing::RandomPrepared;

struct Result {
  std::vector<float> out;          // [B, S, H, D]
  std::vector<float> log_sum_exp;  // [B, H, S]
};

Result run(const schedule::PreparedView& view, int threads, const AttentionKernel& kernel) {
  const Problem& p = view.problem;
  Result result;
  const auto rows = static_cast<std::size_t>(p.batch_heads() * p.queries);
  result.out.assign(rows * kHeadDim, -7.0f);
  result.log_sum_exp.assign(rows, -7.0f);
  MutableTensorView out{.data = result.out.data(),
                        .type = ElementType::float32,
                        .device = {},
                        .shape = {p.batch, p.queries, p.heads, kHeadDim},
                        .strides = {}};
  out.strides = contiguous_strides(out.shape);
  ThreadPool pool(threads);
  attention_prepared(view, out, result.log_sum_exp.data(), pool, kernel);
  return result;
}

const float* row_of(const Result& result, const Problem& p, std::int64_t bh, std::int64_t query) {
  const std::int64_t token = (bh / p.heads * p.queries + query) * p.heads + bh % p.heads;
  return result.out.data() + token * kHeadDim;
}

/// Reference results of about `limit` rows, all of them for small problems.
class References {
 public:
  explicit References(const RandomPrepared& prepared, std::int64_t limit = 64)
      : problem_(prepared.view().problem) {
    const std::int64_t rows = problem_.batch_heads() * problem_.queries;
    step_ = std::max<std::int64_t>(1, rows / limit);
    for (std::int64_t i = 0; i < rows; i += step_) {
      rows_.push_back(testing::reference_attention(prepared.view(), i / problem_.queries,
                                                   i % problem_.queries));
    }
  }

  void expect(const Result& result, double tolerance) const {
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const std::int64_t row = static_cast<std::int64_t>(i) * step_;
      const std::int64_t bh = row / problem_.queries;
      const std::int64_t query = row % problem_.queries;
      SCOPED_TRACE(::testing::Message() << "head " << bh << ", query " << query);
      expect_row(rows_[i], row_of(result, problem_, bh, query), tolerance);
      expect_log_sum(rows_[i].log_sum_exp, result.log_sum_exp[static_cast<std::size_t>(row)],
                     10 * tolerance);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

 private:
  static void expect_row(const testing::ReferenceRow& expected, const float* actual,
                         double tolerance) {
    double error = 0.0;
    double size = 0.0;
    for (int c = 0; c < kHeadDim; ++c) {
      const double value = expected.out[static_cast<std::size_t>(c)];
      ASSERT_EQ(std::isnan(value), std::isnan(actual[c])) << "channel " << c;
      if (std::isnan(value)) continue;
      error += (value - actual[c]) * (value - actual[c]);
      size += value * value;
    }
    ASSERT_LE(std::sqrt(error), tolerance * std::sqrt(size) + 1e-30)
        << expected.ambiguous_scores << " scores next to a tie";
  }

  static void expect_log_sum(double expected, float actual, double tolerance) {
    ASSERT_EQ(std::isnan(expected), std::isnan(actual));
    if (std::isfinite(expected)) {
      ASSERT_NEAR(expected, actual, tolerance);
    } else if (!std::isnan(expected)) {
      ASSERT_EQ(expected, actual);
    }
  }

  Problem problem_;
  std::int64_t step_ = 1;
  std::vector<testing::ReferenceRow> rows_;
};

constexpr double kSummationTolerance = 3e-6;

struct Case {
  const char* name;
  Problem problem;
  RandomPrepared::Options options;
};

Problem shape(std::int64_t batch, std::int64_t heads, std::int64_t queries, std::int64_t keys) {
  Problem p;
  p.batch = batch;
  p.heads = heads;
  p.queries = queries;
  p.keys = keys;
  return p;
}

Problem causal(Problem p) {
  p.mask = Mask::causal;
  return p;
}

Problem descending(Problem p) {
  p.key_order = KeyOrder::descending;
  return p;
}

Problem repaired(Problem p, std::int64_t rows) {
  p.repair_rows = rows;
  return p;
}

std::vector<Case> cases() {
  return {
      {"one_by_one", shape(1, 1, 1, 1), {}},
      {"one_query", shape(1, 2, 1, 1000), {}},
      {"text_tokens", shape(1, 2, 70, 77), {}},
      {"whole_blocks", shape(1, 1, 256, 256), {}},
      {"odd", shape(2, 3, 65, 131), {}},
      {"long", shape(1, 1, 300, 1700), {}},
      {"descending", descending(shape(1, 1, 300, 1700)), {}},
      {"causal", causal(shape(1, 2, 530, 530)), {}},
      {"causal_more_keys", causal(shape(1, 1, 200, 515)), {}},
      {"causal_more_queries", causal(shape(1, 1, 515, 200)), {}},
      {"extra_steps", shape(1, 2, 90, 300), {.extra_steps = 4}},
      {"peaked", shape(1, 2, 90, 600), {.score_size = 4.0f}},
      {"wide", shape(1, 2, 90, 600), {.wide = true, .score_exponent = 2}},
      {"wide_fine", shape(1, 1, 90, 600), {.wide = true}},
      {"wide_causal", causal(shape(1, 1, 300, 100)), {.wide = true, .score_exponent = 1}},
      {"repair", repaired(shape(1, 2, 90, 600), 150), {}},
      {"repair_steps", repaired(shape(1, 1, 90, 300), 3), {.extra_steps = 1}},
      {"repair_wide", repaired(shape(1, 1, 90, 300), 130), {.wide = true, .score_exponent = 3}},
  };
}

class AttentionCases : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionCases, EveryKernelEqualsTheReference) {
  const RandomPrepared prepared(GetParam().problem, GetParam().options);
  const References references(prepared);
  for (const AttentionKernel* kernel : all_attention_kernels()) {
    SCOPED_TRACE(kernel->name);
    references.expect(run(prepared.view(), 2, *kernel), kSummationTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionCases, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return std::string(test.param.name); });

// With subnormal codes a sum in binary32 depends on its order, and a score next to a tie of
// binary16 may round the other way: one code, 1/8 octave of one probability. That is the bounded
// part of the contract.
TEST(Attention, ScoresBetweenTwoBinary16NumbersMoveOneCode) {
  const RandomPrepared prepared(shape(1, 2, 128, 2000),
                                {.score_size = 1.0f, .exact_scores = false, .seed = 5});
  References(prepared).expect(run(prepared.view(), 2, attention_kernel()), 1e-3);
}

TEST(Attention, PaddingDoesNotShow) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const RandomPrepared prepared(c.problem, c.options);
    RandomPrepared::Options options = c.options;
    options.poisoned_padding = true;
    const RandomPrepared poisoned(c.problem, options);
    for (const AttentionKernel* kernel : all_attention_kernels()) {
      SCOPED_TRACE(kernel->name);
      const Result expected = run(prepared.view(), 2, *kernel);
      const Result actual = run(poisoned.view(), 2, *kernel);
      EXPECT_EQ(expected.out, actual.out);
      EXPECT_EQ(expected.log_sum_exp, actual.log_sum_exp);
    }
  }
}

TEST(Attention, BitsDoNotDependOnThreads) {
  for (Problem p : {shape(1, 3, 700, 900), causal(shape(2, 1, 520, 520)), shape(1, 1, 40, 3000)}) {
    const RandomPrepared prepared(p, {.exact_scores = false});
    const Result one = run(prepared.view(), 1, attention_kernel());
    for (int threads : {2, 3, 16}) {
      const Result many = run(prepared.view(), threads, attention_kernel());
      EXPECT_EQ(one.out, many.out);
      EXPECT_EQ(one.log_sum_exp, many.log_sum_exp);
    }
  }
}

TEST(Attention, BitsDoNotDependOnTheCallersRoundingMode) {
  const RandomPrepared prepared(shape(1, 1, 130, 300), {.exact_scores = false});
  const Result expected = run(prepared.view(), 2, attention_kernel());
  std::fesetround(FE_UPWARD);
  const Result actual = run(prepared.view(), 2, attention_kernel());
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(expected.out, actual.out);
}

TEST(Attention, RowsWithoutKeysAreZero) {
  const Problem p = causal(shape(1, 2, 300, 40));
  const RandomPrepared prepared(p, {});
  for (const AttentionKernel* kernel : all_attention_kernels()) {
    const Result result = run(prepared.view(), 1, *kernel);
    ASSERT_EQ(schedule::visible_keys(p, 259), 0);
    for (int c = 0; c < kHeadDim; ++c) ASSERT_EQ(row_of(result, p, 1, 259)[c], 0.0f);
    EXPECT_EQ(result.log_sum_exp[300 + 259], -numerics::infinity());
    EXPECT_TRUE(std::isfinite(result.log_sum_exp[300 + 260]));
  }
}

TEST(Attention, NanStaysInItsRowsAndStaysVisible) {
  const Problem p = shape(1, 2, 100, 300);
  RandomPrepared query_nan(p, {});
  query_nan.data()[query_nan.layout().query_codes + 17 * kHeadDim + 3] = std::byte{0x7F};
  RandomPrepared key_nan(p, {.wide = true});
  key_nan.data()[key_nan.layout().key_codes + 200 * kHeadDim + 5] = std::byte{0xFF};
  for (const RandomPrepared* prepared : {&query_nan, &key_nan}) {
    const References references(*prepared, 200);
    for (const AttentionKernel* kernel : all_attention_kernels()) {
      SCOPED_TRACE(kernel->name);
      references.expect(run(prepared->view(), 2, *kernel), kSummationTolerance);
    }
  }
}

TEST(Attention, StridesAndElementTypesOfTheOutput) {
  const Problem p = shape(2, 2, 70, 200);
  const RandomPrepared prepared(p, {.with_log_sum_exp = false});
  const Result expected = run(prepared.view(), 2, attention_kernel());
  for (ElementType type : {ElementType::float32, ElementType::bfloat16, ElementType::float16}) {
    SCOPED_TRACE(element_name(type));
    // [B, H, S, D + 3] in memory, starting in the middle.
    constexpr std::int64_t kRow = kHeadDim + 3;
    const auto size = static_cast<std::size_t>(2 * 2 * 70 * kRow + 5);
    std::vector<std::uint32_t> words(size, 0xABABABABu);
    auto* bytes = reinterpret_cast<std::byte*>(words.data());
    const MutableTensorView out{.data = bytes + 5 * element_size(type),
                                .type = type,
                                .device = {},
                                .shape = {2, 70, 2, kHeadDim},
                                .strides = {2 * 70 * kRow, kRow, 70 * kRow, 1}};
    ThreadPool pool(2);
    attention_prepared(prepared.view(), out, nullptr, pool);
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t s = 0; s < 70; ++s) {
          const float* row = row_of(expected, p, b * 2 + h, s);
          const std::int64_t offset = 5 + out.view().offset(b, s, h);
          for (std::int64_t c = 0; c < kRow; ++c) {
            const std::byte* at =
                bytes + (offset + c) * static_cast<std::int64_t>(element_size(type));
            std::uint32_t bits = 0;
            std::memcpy(&bits, at, element_size(type));
            std::uint32_t want = type == ElementType::float32 ? 0xABABABABu : 0xABABu;
            if (c < kHeadDim) {
              want = type == ElementType::float32    ? numerics::float_bits(row[c])
                     : type == ElementType::bfloat16 ? numerics::float_to_bfloat16(row[c])
                                                     : numerics::float_to_half(row[c]);
            }
            ASSERT_EQ(bits, want) << b << ' ' << h << ' ' << s << ' ' << c;
          }
        }
      }
    }
  }
}

TEST(Attention, OutputsBeyondTheElementTypeSaturate) {
  const Problem p = shape(1, 1, 3, 1);
  RandomPrepared prepared(p, {.with_log_sum_exp = false});
  const auto set = [&](std::size_t section, int channel, float value) {
    std::memcpy(prepared.data() + section + static_cast<std::size_t>(channel) * sizeof(float),
                &value, sizeof(value));
  };
  set(prepared.layout().value_means, 0, 1e30f);
  set(prepared.layout().value_means, 1, -70000.0f);
  set(prepared.layout().value_scales, 0, 0.0f);
  set(prepared.layout().value_scales, 1, 0.0f);
  set(prepared.layout().value_means, 2, std::numeric_limits<float>::quiet_NaN());
  for (const AttentionKernel* kernel : all_attention_kernels()) {
    std::vector<std::uint16_t> out(3 * kHeadDim);
    const MutableTensorView view{.data = out.data(),
                                 .type = ElementType::float16,
                                 .device = {},
                                 .shape = {1, 3, 1, kHeadDim},
                                 .strides = contiguous_strides({1, 3, 1, kHeadDim})};
    ThreadPool pool(1);
    attention_prepared(prepared.view(), view, nullptr, pool, *kernel);
    EXPECT_EQ(numerics::half_to_float(out[0]), numerics::kHalfMax) << kernel->name;
    EXPECT_EQ(numerics::half_to_float(out[1]), -numerics::kHalfMax) << kernel->name;
    EXPECT_TRUE(std::isnan(numerics::half_to_float(out[2]))) << kernel->name;
  }
}

}  // namespace
}  // namespace openvc::cpu
