// SPDX-License-Identifier: BSD-3-Clause
#include "study/error_study.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>
#include <vector>

#include "openvc/attention.hpp"
#include "openvc/status.hpp"
#include "study/families.hpp"
#include "study/study_summary.hpp"
#include "study/tensors.hpp"

namespace openvc::study {
namespace {

constexpr int kChannels = 128;

StudyResult study_of(const Tensors& in, const StudyOptions& options) {
  return run_error_study(in.q.view(), in.k.view(), in.v.view(), options);
}

StudyOptions plain_options() {
  StudyOptions options;
  options.sweep_options = false;
  options.threads = 2;
  return options;
}

TEST(SampleRows, AreEvenlySpacedAndInRange) {
  EXPECT_THAT(sample_rows(10, 5), testing::ElementsAre(1, 3, 5, 7, 9));
  EXPECT_THAT(sample_rows(3, 256), testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(sample_rows(1'000'000, 1), testing::ElementsAre(500'000));
}

TEST(ErrorStudy, TotalIsTheErrorOfTheLibraryItself) {
  const Tensors in = generate("video_field", {2, 300, 260, 2}, ElementType::float32, 4);
  StudyOptions options = plain_options();
  options.rows = 64;
  const StudyResult study = study_of(in, options);
  ASSERT_EQ(study.results.size(), 4u);
  OwnedTensor out(ElementType::float32, in.q.shape);
  attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view());
  std::vector<double> exact(2 * study.rows.size() * 2 * kChannels);
  exact_attention(in.q.view(), in.k.view(), in.v.view(), study.rows, exact.data());
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 2; ++h) {
      ErrorMeasure expected;
      for (std::size_t r = 0; r < study.rows.size(); ++r) {
        std::vector<float> row(kChannels);
        load_row(out.view(), b, study.rows[r], h, row);
        const std::vector<double> output(row.begin(), row.end());
        const std::size_t start = ((static_cast<std::size_t>(b) * study.rows.size() + r) * 2 +
                                   static_cast<std::size_t>(h)) *
                                  kChannels;
        expected.add(output, std::span(exact).subspan(start, kChannels));
      }
      const HeadResult& head = study.results[static_cast<std::size_t>(b * 2 + h)];
      EXPECT_EQ(head.batch, b);
      EXPECT_EQ(head.head, h);
      EXPECT_NEAR(head.total.relative_l2(), expected.relative_l2(), 1e-6);
      EXPECT_NEAR(head.total.max_error, expected.max_error, 1e-6);
    }
  }
}

TEST(ErrorStudy, SquaresOfTheSourcesSumToTheSquareOfTheTotal) {
  for (const char* family : {"gaussian", "channel_outliers", "sink_token"}) {
    const Tensors in = generate(family, {1, 900, 900, 1}, ElementType::bfloat16, 2);
    const StudyResult study = study_of(in, plain_options());
    const HeadResult& head = study.results.front();
    double squares = 0.0;
    for (std::size_t s = 0; s < kSourcesOfTotal; ++s) {
      squares += std::pow((head.sources.*kSources[s].measure).relative_l2(), 2);
    }
    EXPECT_NEAR(std::sqrt(squares) / head.total.relative_l2(), 1.0, 0.12) << family;
  }
}

TEST(ErrorStudy, ExactStagesHaveNoError) {
  // Equal tokens: nothing to weigh, and V is its own mean.
  const Tensors in = generate("constant_rows", {1, 200, 200, 1});
  const StudyResult study = study_of(in, plain_options());
  const SourceErrors& sources = study.results.front().sources;
  EXPECT_LT(sources.query_key_rounding.relative_l2(), 1e-6);
  EXPECT_LT(sources.probability_coding.relative_l2(), 1e-6);
  EXPECT_LT(sources.underflow_tail.relative_l2(), 1e-6);
  EXPECT_LT(sources.value_rounding.relative_l2(), 1e-2);
  EXPECT_EQ(sources.flushed_mass, 0.0);
}

TEST(ErrorStudy, Int8ScoresNeedARotationWhereChannelsStandOut) {
  const Tensors in = generate("channel_outliers", {1, 400, 400, 1});
  StudyOptions options = plain_options();
  options.attention.numerics.max_extra_steps = 0;
  options.attention.numerics.rotation = Choice::never;
  const HeadResult head = study_of(in, options).results.front();
  const double per_token = head.int8_scores[0].relative_l2();
  const double blocks = head.int8_scores[1].relative_l2();
  const double e4m3 = head.sources.query_key_rounding.relative_l2();
  EXPECT_GT(blocks, 0.0);
  EXPECT_LT(blocks, 0.5 * e4m3);
  EXPECT_GT(per_token, e4m3);
}

TEST(ErrorStudy, OutputRoundingIsThatOfTheElementType) {
  const auto rounding = [](ElementType type) {
    const Tensors in = generate("gaussian", {1, 300, 300, 1}, type);
    return study_of(in, plain_options()).results.front().sources.output_rounding.relative_l2();
  };
  EXPECT_NEAR(rounding(ElementType::bfloat16), 0.0016, 0.0003);
  EXPECT_NEAR(rounding(ElementType::float16), 0.0002, 0.00004);
  EXPECT_LT(rounding(ElementType::float32), 1e-7);
}

TEST(ErrorStudy, PredictedScoreErrorIsTheMeasuredOne) {
  const Tensors in = generate("channel_outliers", {1, 700, 700, 2});
  for (const HeadResult& head : study_of(in, plain_options()).results) {
    EXPECT_NEAR(head.plan.predicted_score_error / head.measured_score_error, 1.0, 0.15);
  }
}

TEST(ErrorStudy, EmulationStandsInForTheBackend) {
  const Tensors in = generate("video_field", {1, 400, 400, 1});
  StudyOptions options = plain_options();
  const StudyResult with = study_of(in, options);
  options.run_backend = false;
  const StudyResult without = study_of(in, options);
  EXPECT_TRUE(with.backend_ran);
  EXPECT_FALSE(without.backend_ran);
  EXPECT_NEAR(with.results[0].total.relative_l2(), without.results[0].total.relative_l2(), 1e-5);
  EXPECT_GT(with.results[0].sources.accumulation.relative_l2(), 0.0);
  EXPECT_EQ(without.results[0].sources.accumulation.elements, 0);
}

TEST(ErrorStudy, RepairReducesTheError) {
  const Tensors in = generate("v_outlier_tokens", {1, 300, 1'000, 1});
  StudyOptions options = plain_options();
  options.budgets = {0.0, 0.01, 0.1, 0.9};
  const auto budgets = study_of(in, options).results.front().budgets;
  ASSERT_EQ(budgets.size(), 4u);
  EXPECT_EQ(budgets[0].tokens, 0);
  EXPECT_EQ(budgets[1].tokens, 10);
  EXPECT_EQ(budgets[3].tokens, 900);
  for (std::size_t i = 1; i < budgets.size(); ++i) {
    EXPECT_LT(budgets[i].error.relative_l2(), budgets[i - 1].error.relative_l2());
  }
}

TEST(ErrorStudy, VariantsChangeWhatTheySay) {
  const Tensors in = generate("channel_outliers", {1, 500, 500, 1});
  StudyOptions options = plain_options();
  options.sweep_options = true;
  const StudyResult study = study_of(in, options);
  const HeadResult& head = study.results.front();
  ASSERT_EQ(head.variants.size(), study.variants.size());
  std::set<std::string> ids;
  const auto variant = [&](std::string_view id) -> const VariantErrors& {
    const auto found = std::ranges::find(study.variants, id, &Variant::id);
    EXPECT_NE(found, study.variants.end()) << id;
    return head.variants[static_cast<std::size_t>(found - study.variants.begin())];
  };
  for (const Variant& v : study.variants) ids.insert(v.id);
  EXPECT_EQ(ids.size(), study.variants.size());
  for (const int steps : {0, 1, 2, 4}) {
    EXPECT_EQ(variant("columns_" + std::to_string(steps)).plan.extra_steps, steps);
  }
  EXPECT_TRUE(variant("rotation_always").plan.rotated);
  EXPECT_LT(variant("columns_1").error.relative_l2(), variant("columns_0").error.relative_l2());
  EXPECT_LT(head.total.relative_l2(), head.reference.relative_l2());
}

TEST(ErrorStudy, DoesNotDependOnThreads) {
  const Tensors in = generate("video_field", {1, 300, 300, 1});
  StudyOptions options = plain_options();
  options.threads = 1;
  const StudyResult one = study_of(in, options);
  options.threads = 3;
  const StudyResult three = study_of(in, options);
  EXPECT_EQ(one.results[0].total.error_squares, three.results[0].total.error_squares);
  EXPECT_EQ(one.results[0].sources.query_key_rounding.error_squares,
            three.results[0].sources.query_key_rounding.error_squares);
  EXPECT_EQ(one.results[0].row_errors, three.results[0].row_errors);
}

TEST(ErrorStudy, ProgressGrowsToTheEnd) {
  const Tensors in = generate("gaussian", {1, 200, 200, 2});
  StudyOptions options = plain_options();
  options.sweep_options = true;
  std::vector<double> fractions;
  options.progress = [&](const Progress& progress) { fractions.push_back(progress.fraction); };
  static_cast<void>(study_of(in, options));
  ASSERT_FALSE(fractions.empty());
  EXPECT_TRUE(std::ranges::is_sorted(fractions));
  EXPECT_NEAR(fractions.back(), 1.0, 1e-9);
}

TEST(ErrorStudy, CausalRowsWithoutKeysAreZeroAndDoNotDisturb) {
  const Tensors in = generate("gaussian", {1, 300, 100, 1});
  StudyOptions options = plain_options();
  options.attention.mask = Mask::causal;
  options.budgets = {0.0};
  const StudyResult study = study_of(in, options);
  EXPECT_TRUE(std::isfinite(study.results[0].total.relative_l2()));
  EXPECT_LT(study.results[0].total.relative_l2(), 0.08);
  EXPECT_EQ(study.results[0].row_errors.front(), 0.0);
}

TEST(ErrorStudy, RefusesWhatHasNoMeaning) {
  const Tensors in = generate("gaussian", {1, 50, 50, 1});
  StudyOptions options = plain_options();
  options.rows = 0;
  EXPECT_THROW(static_cast<void>(study_of(in, options)), Error);
  options.rows = 8;
  for (const double budget : {-0.1, 1.0, std::nan("")}) {
    options.budgets = {budget};
    EXPECT_THROW(static_cast<void>(study_of(in, options)), Error) << budget;
  }
  options.budgets = {0.1};
  options.attention.mask = Mask::causal;
  EXPECT_THROW(static_cast<void>(study_of(in, options)), Error);
  options = plain_options();
  Tensors narrow = in;
  for (OwnedTensor* tensor : {&narrow.q, &narrow.k, &narrow.v}) tensor->shape[kChannel] = 64;
  EXPECT_THROW(static_cast<void>(study_of(narrow, options)), Error);
  Tensors grouped = generate("gaussian", {1, 50, 50, 2});
  grouped.k.shape[kHead] = grouped.v.shape[kHead] = 1;
  EXPECT_THROW(static_cast<void>(study_of(grouped, options)), Error);
}

TEST(AddedWork, CountsColumns) {
  HeadPlan plan;
  EXPECT_EQ(added_work(plan), 0.0);
  plan.extra_steps = 2;
  EXPECT_DOUBLE_EQ(added_work(plan), 0.25);
  plan.rotated = true;
  EXPECT_DOUBLE_EQ(added_work(plan), 0.25);
}

}  // namespace
}  // namespace openvc::study
