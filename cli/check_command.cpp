// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "command.hpp"
#include "input_options.hpp"
#include "openvc/info.hpp"
#include "study/self_check.hpp"

namespace openvc::cli {
namespace {

struct CheckArguments {
  bool smoke = false;
  bool as_json = false;
  int threads = 0;
};

void print_row(const study::CheckResult& result) {
  fmt::print("{:<5} {:<9} {:<40} {:>10.3g} <= {:<8.3g} {}\n", result.passed ? "ok" : "FAIL",
             result.group, result.name, result.value.measured, result.value.limit,
             result.value.meaning);
  std::fflush(stdout);
}

std::string to_json(const std::vector<study::CheckResult>& results, bool passed) {
  const Info build = info();
  nlohmann::ordered_json json = {{"schema", "openvc.check"},
                                 {"schema_version", 1},
                                 {"version", build.version},
                                 {"contract_version", build.contract_version},
                                 {"passed", passed}};
  json["checks"] = nlohmann::ordered_json::array();
  for (const study::CheckResult& result : results) {
    json["checks"].push_back({{"group", result.group},
                              {"name", result.name},
                              {"passed", result.passed},
                              {"measured", result.value.measured},
                              {"limit", result.value.limit},
                              {"meaning", result.value.meaning}});
  }
  return json.dump(1);
}

int run_checks(const CheckArguments& arguments) {
  study::SelfCheckOptions options;
  options.smoke = arguments.smoke;
  options.threads = arguments.threads;
  if (!arguments.as_json) options.finished = print_row;
  const auto results = study::run_self_check(options);
  const auto failed = std::ranges::count_if(results, [](const auto& r) { return !r.passed; });
  if (arguments.as_json) {
    fmt::print("{}\n", to_json(results, failed == 0));
  } else {
    fmt::print("\n{} of {} checks passed\n", results.size() - static_cast<std::size_t>(failed),
               results.size());
  }
  return failed == 0 ? kExitSuccess : kExitFailure;
}

}  // namespace

Command add_check_command(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("check", "does this build compute what it promises on this machine?");
  const auto arguments = std::make_shared<CheckArguments>();
  app->add_flag("--smoke", arguments->smoke, "shorter sequences");
  app->add_flag("--json", arguments->as_json, "print JSON");
  app->add_option("--threads", arguments->threads, "threads of the CPU; 0 takes all")
      ->check(thread_count());
  return {app, [arguments] { return run_checks(*arguments); }};
}

}  // namespace openvc::cli
