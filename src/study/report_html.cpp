// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "openvc/info.hpp"
#include "study/report.hpp"
#include "study/report_charts.hpp"
#include "study/report_style.hpp"
#include "study/report_text.hpp"
#include "study/study_summary.hpp"
#include "study/svg.hpp"

namespace openvc::study {
namespace {

/// Appends pieces of markup. Arguments are markup, too: text from outside goes through
/// escape_markup() first.
class Page {
 public:
  template <class... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }
  void figure(std::string_view title, std::string_view legend, std::string_view chart,
              std::string_view caption) {
    add("<figure class=\"card\"><h3>{}</h3>\n{}{}<figcaption>{}</figcaption></figure>\n", title,
        legend, chart, caption);
  }
  /// A percent sign stays on the line of its number.
  [[nodiscard]] std::string take() const {
    constexpr std::string_view kSpacedPercent = " %";
    std::string text;
    std::size_t from = 0;
    for (std::size_t at = 0; (at = text_.find(kSpacedPercent, from)) != std::string::npos;
         from = at + kSpacedPercent.size()) {
      text.append(text_, from, at - from).append("\u00a0%");
    }
    return text.append(text_, from);
  }

 private:
  std::string text_;
};

std::string heads_phrase(std::size_t count, std::size_t heads) {
  if (count == heads) return heads == 1 ? "the head" : "all heads";
  return fmt::format("{} of {} heads", count, heads);
}

/// What the planner used, and in how many heads.
std::string spending_phrase(const StudySummary& summary, std::size_t heads) {
  std::string text;
  const auto add = [&](std::string_view name, std::size_t count) {
    if (count == 0) return;
    text += fmt::format("{}{} in {}", text.empty() ? "main-loop work: " : ", ", name,
                        heads_phrase(count, heads));
  };
  add("residual columns", summary.heads_with_columns);
  if (text.empty()) text = "no head needs more than plain FP8";
  if (summary.heads_rotated > 0) {
    text +=
        fmt::format("; rotation, which is free, in {}", heads_phrase(summary.heads_rotated, heads));
  }
  return text;
}

/// "3.4 times", or "the same" error.
std::string ratio_sentence(const StudySummary& summary) {
  const double ratio = summary.reference.rms / summary.total.rms;
  if (!(summary.total.rms > 0.0)) return "";
  if (ratio > 1.05) return fmt::format("{:.2g} times as much", ratio);
  return ratio < 0.95 ? fmt::format("{:.2g} times that", ratio) : std::string("about the same");
}

void add_hero(Page& page, const StudyResult& study, const StudySummary& summary) {
  std::string number = percent(summary.total.rms);
  number = number.substr(0, number.find(" %"));
  const std::size_t heads = study.results.size();
  page.add("<section class=\"card hero\"><div>\n<p class=\"number\">{}<small>%</small></p>\n",
           number);
  page.add(
      "<p>That is how far the FP8 output is from exact attention: the relative L2 error, RMS over "
      "{} "
      "head{}, on {} queries each.</p>\n",
      heads, heads == 1 ? "" : "s", grouped(static_cast<std::int64_t>(study.rows.size())));
  page.add(
      "<p class=\"soft\">The published reference numerics are {} away, "
      "{}.</p></div>\n<div>{}</div></section>\n",
      percent(summary.reference.rms), ratio_sentence(summary), comparison_chart(summary));
}

void add_fact(Page& page, std::string_view name, std::string_view value, std::string_view note) {
  page.add("<div class=\"card\"><span class=\"name\">{}</span><b>{}</b><span>{}</span></div>\n",
           name, value, note);
}

void add_facts(Page& page, const StudyResult& study, const StudySummary& summary) {
  const std::size_t heads = study.results.size();
  page.add("<section class=\"facts\">\n");
  add_fact(page, "Worst head", percent(summary.total.worst),
           head_name(study, summary.total.worst_head));
  const Source& source = kSources[summary.largest_source];
  add_fact(page, "Largest source", percent(summary.sources[summary.largest_source].rms),
           source.label);
  add_fact(
      page, "What the plan spent",
      summary.added_work > 0 ? "+" + exact_percent(summary.added_work) : std::string("nothing"),
      spending_phrase(summary, heads));
  add_fact(page, "Smallest cosine", fmt::format("{:.5f}", summary.smallest_cosine),
           fmt::format("largest error of one number {:.3g}", summary.largest_error));
  page.add("</section>\n");
}

std::string source_legend(bool with_reference) {
  std::string legend = "<ul class=\"legend\">";
  for (std::size_t s = 0; s < kSourcesOfTotal; ++s) {
    legend += fmt::format("<li><i class=\"key k-s{}\"></i>{}</li>", s, kSources[s].label);
  }
  if (with_reference) {
    legend += "<li><i class=\"key diamond k-mark\"></i>reference numerics</li>";
  }
  return legend + "</ul>\n";
}

void add_sources(Page& page, const StudyResult& study, const StudySummary& summary) {
  page.add(
      "<h2>Where the error comes from</h2>\n<p class=\"lead\">Each stage rounds something. The "
      "parts are nearly independent, so their squares add up to the square of the total.</p>\n"
      "<div class=\"grid\">\n");
  const bool all = study.results.size() <= kMaxChartHeads;
  page.figure(
      "Error of each head", source_legend(true), head_chart(study),
      fmt::format(
          "Length of a bar: the head's total error. Its colours share that length in "
          "proportion to the squared errors of the sources. The diamond is the "
          "reference on the same head; further right is worse.{}",
          all ? ""
              : fmt::format(" Shown are the {} heads with the largest error.", kMaxChartHeads)));
  page.figure("Each source by itself", "", source_chart(study, summary),
              fmt::format("One stage as in the library, the others exact. Bar: RMS over heads; "
                          "circles: single heads. Storing the output in {} comes on top of the "
                          "total.",
                          element_name(study.element_type)));
  page.add("</div>\n");
}

void add_budget_table(Page& page, const StudySummary& summary) {
  page.add(
      "<div class=\"card scroll\"><table><thead><tr><th>repaired tokens</th><th>error</th>"
      "<th>worst head</th><th>error removed</th></tr></thead><tbody>\n");
  const double plain = summary.budgets.front().error.rms;
  for (const BudgetSummary& budget : summary.budgets) {
    const double removed = plain > 0.0 ? 1.0 - budget.error.rms / plain : 0.0;
    page.add("<tr><td>{}</td><td><b>{}</b></td><td>{}</td><td>{:.1f} %</td></tr>\n",
             exact_percent(budget.budget), percent(budget.error.rms), percent(budget.error.worst),
             100.0 * removed);
  }
  page.add("</tbody></table></div>\n");
}

void add_options(Page& page, const StudyResult& study, const StudySummary& summary) {
  const bool repaired = summary.budgets.size() > 1;
  if (study.variants.empty() && !repaired) return;
  page.add(
      "<h2>What would change it</h2>\n<p class=\"lead\">Every option of the numerics, changed "
      "one at a time, and the error that repairing tokens of V removes.</p>\n"
      "<div class=\"grid\">\n");
  if (!study.variants.empty()) {
    page.figure("Other values of the options", "", option_chart(study, summary),
                "Dashed line: this run. Left of it an option lowers the error, right of it the "
                "default does. Added work is main-loop time on top of plain FP8 attention.");
  }
  if (repaired) {
    page.add("<div class=\"stack\">\n");
    page.figure(
        "V residual repair", "", budget_chart(summary),
        "Repair returns the rounding error of V for some tokens; it costs their share of main-loop "
        "work. A flat curve says that V is not what limits this input.");
    add_budget_table(page, summary);
    page.add("</div>\n");
  }
  page.add("</div>\n");
}

void add_rows(Page& page, const StudyResult& study, const StudySummary& summary) {
  const auto& errors = summary.sorted_row_errors;
  page.add(
      "<h2>Which queries are affected</h2>\n<p class=\"lead\">Half of the sampled queries are "
      "below {}, 99 % below {}.</p>\n<div class=\"grid\">\n",
      percent(quantile(errors, 0.5)), percent(quantile(errors, 0.99)));
  page.figure("Queries by their error", "", histogram_chart(summary),
              "All heads together. The last bar also holds everything beyond the axis. A long tail "
              "to the right means that few queries carry most of the error.");
  page.figure("Along the sequence", "", position_chart(study, summary),
              "Stronger colour is worse. Columns are places in the video, rows are heads; an even "
              "tone means that no frame is treated worse than others.");
  page.add("</div>\n");
}

void add_plan(Page& page, const StudyResult& study) {
  page.add(
      "<h2>The plan of each head</h2>\n<p class=\"lead\">The preparation predicts every head's "
      "score error from its statistics and spends extra work only where that pays.</p>\n"
      "<div class=\"grid loose\">\n<div class=\"card scroll\"><table><thead><tr><th>head</th>"
      "<th class=\"words\">plan</th><th>score error<br>predicted</th><th><br>measured</th>"
      "<th>output<br>error</th><th><br>reference</th></tr></thead><tbody>\n");
  for (std::size_t i = 0; i < study.results.size(); ++i) {
    const HeadResult& head = study.results[i];
    page.add(
        "<tr><td>{}</td><td class=\"words\">{}</td><td>{:.3f}</td><td>{:.3f}</td>"
        "<td><b>{}</b></td><td>{}</td></tr>\n",
        short_head_name(study, i), plan_phrase(head.plan), head.plan.predicted_score_error,
        head.measured_score_error, percent(head.total.relative_l2()),
        percent(head.reference.relative_l2()));
  }
  page.add("</tbody></table></div>\n");
  page.figure("Is the prediction right?",
              "<ul class=\"legend\"><li><i class=\"key round k-ours\"></i>heads with residual "
              "columns</li><li><i class=\"key round ring k-ours\"></i>other heads</li></ul>\n",
              plan_chart(study),
              "Standard deviation of the score error in steps of 1/8 octave; an error of one step "
              "changes a softmax weight by 9 %. On the dashed line prediction and measurement "
              "agree.");
  page.add("</div>\n");
}

void add_terms(Page& page) {
  page.add(
      "<h2>Terms</h2>\n<dl>\n"
      "<dt>Relative L2 error</dt><dd>Length of the difference to exact attention in float64, "
      "divided "
      "by the length of the exact output.</dd>\n"
      "<dt>Reference numerics</dt><dd>What the published systems do: one Q and one K scale per 128 "
      "tokens, one V scale per head, neither smoothing nor rotation.</dd>\n"
      "<dt>Residual columns</dt><dd>What rounding removed from the channels of Q and K with the "
      "most "
      "energy, appended to the product. 16 channels cost 12.5 % of the main loop.</dd>\n"
      "<dt>Probability coding</dt><dd>Softmax weights are written as 8-bit codes straight from the "
      "score, in steps of 1/8 octave below the largest of its block of 128 keys.</dd>\n"
      "<dt>Underflow tail</dt><dd>Weights too small for a normal 8-bit number, underestimated or "
      "flushed to zero.</dd>\n"
      "<dt>Accumulation</dt><dd>The backend's sums against the same bytes summed in float64.</dd>\n"
      "</dl>\n");
}

void add_footer(Page& page, const StudyResult& study, const ReportHeader& header) {
  const Info build = info();
  page.add(
      "<footer><p>Open-VC Attention {}, numerics contract {}; {} on the CPU ({}), {:.1f} s.</p>\n",
      escape_markup(build.version), build.contract_version,
      study.backend_ran ? "attention ran" : "emulated", escape_markup(build.cpu_simd_target),
      study.seconds);
  if (!header.command.empty()) {
    page.add("<p>Made with <code>{}</code></p>\n", escape_markup(header.command));
  }
  page.add("</footer>\n");
}

}  // namespace

std::string report_html(const StudyResult& study, const ReportHeader& header) {
  const StudySummary summary = summarize(study);
  Page page;
  page.add(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>Attention error of {}</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n",
      escape_markup(header.source), kReportStyle);
  page.add(
      "<p class=\"eyebrow\">Attention error report</p>\n<h1>{}</h1>\n<p "
      "class=\"lead\">{}{}{}</p>\n",
      escape_markup(header.source), shape_phrase(study, "×"), header.details.empty() ? "" : " · ",
      escape_markup(header.details));
  if (!header.note.empty()) {
    page.add("<p><strong>Note:</strong> {}</p>\n", escape_markup(header.note));
  }
  add_hero(page, study, summary);
  add_facts(page, study, summary);
  add_sources(page, study, summary);
  add_options(page, study, summary);
  add_rows(page, study, summary);
  add_plan(page, study);
  add_terms(page);
  add_footer(page, study, header);
  page.add("</main>\n</body>\n</html>\n");
  return page.take();
}

}  // namespace openvc::study
