// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "input_options.hpp"
#include "openvc/info.hpp"
#include "output.hpp"
#include "study/self_check.hpp"

namespace openvc::cli {
namespace {

struct CheckArguments {
  bool smoke = false;
  bool as_json = false;
  int threads = 0;
};

/// What was found on one device.
struct TargetReport {
  study::CheckTarget target;
  std::vector<study::CheckResult> results;  // none for a device that no backend serves

  [[nodiscard]] std::size_t failed() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(results, [](const auto& result) { return !result.passed; }));
  }
};

/// The GPUs that were not checked, in words; empty if there are none.
std::string unchecked_gpus(const std::vector<TargetReport>& reports, const CudaInfo& cuda) {
  if (cuda.devices.empty()) return "no GPU was checked: " + cuda.problem;
  std::string text;
  for (const TargetReport& report : reports) {
    if (report.target.refusal.empty()) continue;
    text += fmt::format("{}{} was not checked: {}", text.empty() ? "" : "\n", report.target.label(),
                        report.target.refusal);
  }
  return text;
}

void print_row(const study::CheckResult& result) {
  fmt::print("{:<5} {:<9} {:<40} {:>10.3g} <= {:<8.3g} {}\n", result.passed ? "ok" : "FAIL",
             result.group, result.name, result.value.measured, result.value.limit,
             result.value.meaning);
  flush_standard_output();
}

void print_summary(const std::vector<TargetReport>& reports, const CudaInfo& cuda) {
  std::size_t total = 0;
  std::size_t failed = 0;
  fmt::print("\n");
  for (const TargetReport& report : reports) {
    if (!report.target.refusal.empty()) continue;
    total += report.results.size();
    failed += report.failed();
    fmt::print("{}: {} of {} passed\n", report.target.label(),
               report.results.size() - report.failed(), report.results.size());
  }
  const std::string unchecked = unchecked_gpus(reports, cuda);
  if (!unchecked.empty()) fmt::print("{}\n", unchecked);
  fmt::print("{} of {} checks passed\n", total - failed, total);
}

std::string device_text(const study::CheckTarget& target) {
  return target.device.type == DeviceType::cpu ? "cpu"
                                               : fmt::format("cuda:{}", target.device.index);
}

std::string to_json(const std::vector<TargetReport>& reports, const Info& build, bool passed) {
  nlohmann::ordered_json json = {{"schema", "openvc.check"},
                                 {"schema_version", 2},
                                 {"version", build.version},
                                 {"contract_version", build.contract_version},
                                 {"passed", passed}};
  json["targets"] = nlohmann::ordered_json::array();
  json["unchecked_gpus"] = unchecked_gpus(reports, build.cuda);
  json["checks"] = nlohmann::ordered_json::array();
  for (const TargetReport& report : reports) {
    json["targets"].push_back({{"device", device_text(report.target)},
                               {"device_name", report.target.device_name},
                               {"backend", report.target.backend},
                               {"checks", report.results.size()},
                               {"failed", report.failed()},
                               {"refusal", report.target.refusal}});
    for (const study::CheckResult& result : report.results) {
      json["checks"].push_back({{"device", device_text(report.target)},
                                {"group", result.group},
                                {"name", result.name},
                                {"passed", result.passed},
                                {"measured", result.value.measured},
                                {"limit", result.value.limit},
                                {"meaning", result.value.meaning}});
    }
  }
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

TargetReport check_target(const study::CheckTarget& target,
                          const study::SelfCheckOptions& options) {
  TargetReport report{target, {}};
  if (!target.refusal.empty()) return report;
  if (options.finished) fmt::print("{}\n", target.label());
  report.results = study::run_self_check(target, options);
  return report;
}

int run_checks(const CheckArguments& arguments) {
  study::SelfCheckOptions options;
  options.smoke = arguments.smoke;
  options.threads = arguments.threads;
  if (!arguments.as_json) options.finished = print_row;
  std::vector<TargetReport> reports;
  for (const study::CheckTarget& target : study::check_targets()) {
    reports.push_back(check_target(target, options));
  }
  const bool passed =
      std::ranges::all_of(reports, [](const auto& report) { return report.failed() == 0; });
  const Info build = info();
  if (arguments.as_json) {
    fmt::print("{}\n", to_json(reports, build, passed));
  } else {
    print_summary(reports, build.cuda);
  }
  return passed ? kExitSuccess : kExitFailure;
}

}  // namespace

Command add_check_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "check", "does this build compute what it promises on this machine, CPU and every GPU?");
  const auto arguments = std::make_shared<CheckArguments>();
  app->add_flag("--smoke", arguments->smoke, "shorter sequences");
  app->add_flag("--json", arguments->as_json, "print JSON");
  app->add_option("--threads", arguments->threads, "threads of the CPU; 0 takes what info tells")
      ->check(thread_count());
  return {app, [arguments] { return run_checks(*arguments); }};
}

}  // namespace openvc::cli
