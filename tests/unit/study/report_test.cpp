// SPDX-License-Identifier: BSD-3-Clause
#include "study/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "study/families.hpp"
#include "study/report_charts.hpp"
#include "study/report_text.hpp"
#include "study/study_summary.hpp"
#include "study/svg.hpp"

namespace openvc::study {
namespace {

using testing::HasSubstr;
using testing::Not;

/// A small study, measured once.
const StudyResult& example() {
  static const StudyResult study = [] {
    const Tensors in = generate("channel_outliers", {1, 260, 260, 3});
    StudyOptions options;
    options.rows = 40;
    options.threads = 2;
    return run_error_study(in.q.view(), in.k.view(), in.v.view(), options);
  }();
  return study;
}

ReportHeader header() {
  return {.source = "some <file>.safetensors", .details = "layer 0 & 1", .command = "a \"b\""};
}

TEST(Percent, KeepsThreeSignificantDigits) {
  EXPECT_EQ(percent(0.0), "0 %");
  EXPECT_EQ(percent(1.5), "150 %");
  EXPECT_EQ(percent(0.167361), "16.7 %");
  EXPECT_EQ(percent(0.0413971), "4.14 %");
  EXPECT_EQ(percent(0.0099999), "1.00 %");
  EXPECT_EQ(percent(0.00166), "0.166 %");
  EXPECT_EQ(percent(0.00049), "0.0490 %");
  EXPECT_EQ(percent(1e-9), "< 0.0001 %");
  EXPECT_EQ(percent(std::numeric_limits<double>::infinity()), "inf");
}

TEST(Printable, IsValidInMarkup) {
  EXPECT_EQ(valid_text("caf\xc3\xa9 \xf0\x9f\x98\x80\n"), "caf\xc3\xa9 \xf0\x9f\x98\x80\n");
  EXPECT_EQ(valid_text("\xff|\xc3"), "\xef\xbf\xbd|\xef\xbf\xbd");
  EXPECT_EQ(printable("a\nb\x1b\x7f\xc2\x85\xef\xbf\xbe."), "a b    .");
  EXPECT_EQ(printable("caf\xc3\xa9 \xc2\xa0\xef\xbf\xbd"), "caf\xc3\xa9 \xc2\xa0\xef\xbf\xbd");
}

TEST(Grouped, SeparatesThousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(75'600), "75,600");
  EXPECT_EQ(grouped(-1'234'567), "-1,234,567");
}

TEST(PlanPhrase, NamesWhatWasSpent) {
  EXPECT_EQ(plan_phrase({}), "plain");
  HeadPlan plan;
  plan.extra_steps = 2;
  EXPECT_EQ(plan_phrase(plan), "32 residual channels");
}

TEST(RoundTicks, CoverTheRange) {
  EXPECT_THAT(round_ticks(17.2, 5), testing::ElementsAre(0, 5, 10, 15, 20));
  EXPECT_THAT(round_ticks(1.0, 4), testing::ElementsAre(0, 0.25, 0.5, 0.75, 1));
  for (const double odd : {0.0, -1.0, std::nan(""), 1e-12, 3e8}) {
    const auto ticks = round_ticks(odd, 5);
    EXPECT_GE(ticks.size(), 2u);
    EXPECT_LE(ticks.size(), 12u);
    EXPECT_GT(ticks.back(), 0.0);
  }
}

TEST(Svg, EscapesTextAndTooltips) {
  Svg svg(10, 10, "a<b");
  svg.text(0, 0, "x & y", "tick");
  svg.rect(0, 0, 1, 1, {"bar", "\"quoted\" > 1"});
  svg.circle(std::nan(""), 0, 1, {"dot"});
  const std::string text = svg.finish();
  EXPECT_THAT(text, HasSubstr("a&lt;b"));
  EXPECT_THAT(text, HasSubstr("x &amp; y"));
  EXPECT_THAT(text, HasSubstr("&quot;quoted&quot; &gt; 1"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(Summary, CountsHeadsEqually) {
  const StudyResult& study = example();
  const StudySummary summary = summarize(study);
  double squares = 0.0;
  double worst = 0.0;
  for (const HeadResult& head : study.results) {
    squares += std::pow(head.total.relative_l2(), 2) / 3.0;
    worst = std::max(worst, head.total.relative_l2());
  }
  EXPECT_NEAR(summary.total.rms, std::sqrt(squares), 1e-12);
  EXPECT_EQ(summary.total.worst, worst);
  EXPECT_EQ(study.results[summary.total.worst_head].total.relative_l2(), worst);
  EXPECT_EQ(summary.sorted_row_errors.size(), 120u);
}

TEST(JsonReport, HasTheDocumentedFields) {
  const auto json = nlohmann::json::parse(report_json(example(), header()));
  EXPECT_EQ(json.at("schema"), "openvc.error_study");
  EXPECT_EQ(json.at("schema_version"), kReportSchemaVersion);
  EXPECT_EQ(json.at("input").at("source"), "some <file>.safetensors");
  EXPECT_EQ(json.at("input").at("keys"), 260);
  EXPECT_EQ(json.at("rows").size(), 40u);
  const auto& summary = json.at("summary");
  EXPECT_DOUBLE_EQ(summary.at("error").at("rms"), summarize(example()).total.rms);
  for (const Source& source : kSources) {
    EXPECT_GE(summary.at("sources").at(std::string(source.id)).at("rms"), 0.0);
  }
  for (const Int8Form& form : kInt8Forms) {
    EXPECT_GT(summary.at("int8_scores").at(std::string(form.id)).at("rms"), 0.0);
    for (const auto& head : json.at("heads")) {
      EXPECT_GT(head.at("int8_scores").at(std::string(form.id)).at("relative_l2"), 0.0);
    }
  }
  EXPECT_EQ(summary.at("budgets").size(), 6u);
  EXPECT_EQ(summary.at("budgets")[1].at("budget"), 0.005);
  EXPECT_EQ(summary.at("variants").size(), example().variants.size());
  ASSERT_EQ(json.at("heads").size(), 3u);
  const auto& head = json.at("heads")[2];
  EXPECT_EQ(head.at("head"), 2);
  for (const char* field : {"relative_l2", "cosine", "max_error", "exact_rms"}) {
    EXPECT_TRUE(head.at("error").at(field).is_number()) << field;
    EXPECT_TRUE(head.at("reference").at(field).is_number()) << field;
  }
  EXPECT_TRUE(head.at("plan").at("extra_steps").is_number_integer());
  EXPECT_EQ(head.at("row_errors").size(), 40u);
  EXPECT_EQ(head.at("budgets")[5].at("tokens"), 21);
  EXPECT_TRUE(head.at("variants").at("columns_4").at("error").at("relative_l2").is_number());
}

TEST(JsonReport, NumbersThatAreNoneBecomeNull) {
  StudyResult study = example();
  study.results[0].total.error_squares = std::nan("");
  const auto json = nlohmann::json::parse(report_json(study, {}));
  EXPECT_TRUE(json.at("heads")[0].at("error").at("relative_l2").is_null());
}

TEST(Reports, ShowTheNoteInEveryForm) {
  ReportHeader noted = header();
  noted.note = "the call had a mask, <ignored>";
  EXPECT_THAT(report_table(example(), noted), HasSubstr("Note: the call had a mask, <ignored>\n"));
  EXPECT_THAT(report_html(example(), noted), HasSubstr("the call had a mask, &lt;ignored&gt;"));
  const auto json = nlohmann::json::parse(report_json(example(), noted));
  EXPECT_EQ(json.at("input").at("note"), noted.note);
  EXPECT_THAT(report_table(example(), header()), Not(HasSubstr("Note:")));
  EXPECT_THAT(report_html(example(), header()), Not(HasSubstr("Note:")));
}

TEST(TableReport, NamesEveryHeadAndSource) {
  const std::string table = report_table(example(), header());
  for (const char* text :
       {"head 0", "head 2", "V rounding", "Underflow tail", "reference numerics",
        "a scale per token", "0.5 %", "260 tokens x 3 heads x 128 channels, bfloat16"}) {
    EXPECT_THAT(table, HasSubstr(text));
  }
}

TEST(HtmlReport, IsSelfContainedAndEscapesWhatComesFromOutside) {
  const std::string page = report_html(example(), header());
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("some &lt;file&gt;.safetensors"));
  EXPECT_THAT(page, HasSubstr("layer 0 &amp; 1"));
  for (const char* foreign : {"<file>", "<script", "http:", "https:", "src=", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(foreign)));
  }
}

TEST(HtmlReport, SurvivesStudiesWithoutOptionsBudgetsOrNumbers) {
  StudyResult study = example();
  study.variants.clear();
  for (HeadResult& head : study.results) {
    head.variants.clear();
    head.budgets.resize(1);
    head.total.error_squares = std::nan("");
    head.row_errors.front() = std::numeric_limits<double>::infinity();
  }
  const std::string page = report_html(study, {});
  EXPECT_THAT(page, Not(HasSubstr("What would change it")));
  EXPECT_THAT(page, HasSubstr("</html>"));
}

TEST(Charts, ShowTheWorstOfManyHeads) {
  StudyResult study = example();
  const HeadResult head = study.results.front();
  study.results.assign(100, head);
  study.results[70].total.error_squares *= 4.0;
  study.results[99].total.error_squares *= 9.0;
  const auto heads = chart_heads(study);
  EXPECT_EQ(heads.size(), kMaxChartHeads);
  EXPECT_THAT(heads, testing::Contains(70u));
  EXPECT_THAT(heads, testing::Contains(99u));
  EXPECT_TRUE(std::ranges::is_sorted(heads));
}

}  // namespace
}  // namespace openvc::study
