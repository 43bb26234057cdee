// SPDX-License-Identifier: BSD-3-Clause
#include <nlohmann/json.hpp>
#include <type_traits>

#include "numerics/contract.hpp"
#include "openvc/info.hpp"
#include "openvc/option_text.hpp"
#include "study/report.hpp"
#include "study/study_summary.hpp"

namespace openvc::study {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const ErrorMeasure& measure) {
  return {{"relative_l2", measure.relative_l2()},
          {"cosine", measure.cosine()},
          {"max_error", measure.max_error},
          {"exact_rms", measure.exact_rms()}};
}

Json to_json(const HeadSpread& spread, const StudyResult& study) {
  const HeadResult& worst = study.results[spread.worst_head];
  return {{"rms", spread.rms},
          {"worst", spread.worst},
          {"worst_batch", worst.batch},
          {"worst_head", worst.head}};
}

Json to_json(const HeadPlan& plan) {
  return {{"extra_steps", plan.extra_steps},
          {"rotated", plan.rotated},
          {"score_exponent", plan.score_exponent},
          {"predicted_score_error", plan.predicted_score_error},
          {"added_work", added_work(plan)}};
}

Json to_json(const NumericOptions& options) {
  Json json;
  for_each_numeric_option([&](const auto& option) {
    const auto value = options.*option.field;
    if constexpr (std::is_enum_v<decltype(value)>) {
      json[option.name] = value_text(value);
    } else {
      json[option.name] = value;
    }
  });
  return json;
}

Json input_json(const StudyResult& study, const ReportHeader& header) {
  return {{"source", header.source},
          {"details", header.details},
          {"note", header.note},
          {"batch", study.batch},
          {"queries", study.queries},
          {"keys", study.keys},
          {"heads", study.heads},
          {"head_dim", numerics::kHeadDim},
          {"element_type", element_name(study.element_type)},
          {"mask", value_text(study.mask)},
          {"softmax_scale", study.softmax_scale}};
}

Json summary_json(const StudyResult& study) {
  const StudySummary summary = summarize(study);
  Json json = {{"error", to_json(summary.total, study)},
               {"reference", to_json(summary.reference, study)},
               {"smallest_cosine", summary.smallest_cosine},
               {"max_error", summary.largest_error},
               {"added_work", summary.added_work},
               {"flushed_mass", summary.flushed_mass}};
  for (std::size_t s = 0; s < kSources.size(); ++s) {
    json["sources"][std::string(kSources[s].id)] = to_json(summary.sources[s], study);
  }
  for (std::size_t f = 0; f < kInt8Forms.size(); ++f) {
    json["int8_scores"][std::string(kInt8Forms[f].id)] = to_json(summary.int8_scores[f], study);
  }
  json["budgets"] = Json::array();
  for (const BudgetSummary& budget : summary.budgets) {
    json["budgets"].push_back({{"budget", budget.budget}, {"error", to_json(budget.error, study)}});
  }
  json["variants"] = Json::array();
  for (std::size_t i = 0; i < study.variants.size(); ++i) {
    const Variant& variant = study.variants[i];
    json["variants"].push_back({{"id", variant.id},
                                {"group", variant.group},
                                {"label", variant.label},
                                {"numerics", to_json(variant.numerics)},
                                {"error", to_json(summary.variants[i].error, study)},
                                {"added_work", summary.variants[i].added_work}});
  }
  return json;
}

Json head_json(const StudyResult& study, const HeadResult& head) {
  Json json = {{"batch", head.batch},
               {"head", head.head},
               {"plan", to_json(head.plan)},
               {"measured_score_error", head.measured_score_error},
               {"measured_flush", head.sources.flushed_mass},
               {"error", to_json(head.total)},
               {"reference", to_json(head.reference)}};
  for (const Source& source : kSources) {
    json["sources"][std::string(source.id)] = to_json(head.sources.*source.measure);
  }
  for (std::size_t f = 0; f < kInt8Forms.size(); ++f) {
    json["int8_scores"][std::string(kInt8Forms[f].id)] = to_json(head.int8_scores[f]);
  }
  json["budgets"] = Json::array();
  for (const BudgetErrors& budget : head.budgets) {
    json["budgets"].push_back(
        {{"budget", budget.budget}, {"tokens", budget.tokens}, {"error", to_json(budget.error)}});
  }
  json["variants"] = Json::object();
  for (std::size_t i = 0; i < study.variants.size(); ++i) {
    json["variants"][study.variants[i].id] = {{"plan", to_json(head.variants[i].plan)},
                                              {"error", to_json(head.variants[i].error)}};
  }
  json["row_errors"] = head.row_errors;
  return json;
}

}  // namespace

std::string report_json(const StudyResult& study, const ReportHeader& header) {
  const Info build = info();
  Json json = {{"schema", "openvc.error_study"},
               {"schema_version", kReportSchemaVersion},
               {"library",
                {{"version", build.version},
                 {"contract_version", build.contract_version},
                 {"cpu_simd_target", build.cpu_simd_target}}},
               {"command", header.command},
               {"input", input_json(study, header)},
               {"numerics", to_json(study.numerics)},
               {"output_from", study.backend_ran ? "backend" : "emulation"},
               {"rows", study.rows},
               {"seconds", study.seconds},
               {"summary", summary_json(study)}};
  json["heads"] = Json::array();
  for (const HeadResult& head : study.results) json["heads"].push_back(head_json(study, head));
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace openvc::study
