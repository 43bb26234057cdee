// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "command.hpp"
#include "input_options.hpp"
#include "output.hpp"
#include "progress_meter.hpp"
#include "study/error_study.hpp"
#include "study/report.hpp"

namespace openvc::cli {
namespace {

struct ErrorArguments {
  InputOptions input;
  AttentionArguments attention;
  std::int64_t rows = 256;
  std::vector<double> budgets;
  bool skip_options = false;
  bool skip_backend = false;
  std::filesystem::path json;
  std::filesystem::path html;
};

int run_study(const ErrorArguments& arguments, const std::string& command) {
  require_outputs({{"--json", arguments.json}, {"--html", arguments.html}},
                  arguments.input.files());
  if (arguments.input.only_check()) return kExitSuccess;
  const InputOptions::Input input = arguments.input.load(arguments.attention.threads());
  study::StudyOptions options;
  options.attention = arguments.attention.options(input.softmax_scale, input.causal);
  options.rows = arguments.rows;
  options.sweep_options = !arguments.skip_options;
  options.run_backend = !arguments.skip_backend;
  options.threads = arguments.attention.threads();
  if (!arguments.budgets.empty()) {
    options.budgets = arguments.budgets;
  } else if (options.attention.mask == Mask::causal) {
    options.budgets = {0.0};
  }
  const study::StudyResult result = [&] {
    ProgressMeter meter;
    options.progress = meter.callback();
    return study::run_error_study(input.q(), input.k(), input.v(), options);
  }();
  const study::ReportHeader header{
      .source = input.name, .details = input.details, .note = input.note, .command = command};
  fmt::print("{}", study::report_table(result, header));
  if (!arguments.json.empty()) {
    write_text(arguments.json, study::report_json(result, header));
    fmt::print("JSON: {}\n", arguments.json.string());
  }
  if (!arguments.html.empty()) {
    write_text(arguments.html, study::report_html(result, header));
    fmt::print("Page: {}\n", arguments.html.string());
  }
  return kExitSuccess;
}

}  // namespace

Command add_error_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "error",
      "how far the output is from exact attention, where the error comes from, what the "
      "options change");
  const auto arguments = std::make_shared<ErrorArguments>();
  arguments->input.add_files(*app);
  arguments->input.add_family(*app);
  arguments->attention.add(*app);
  arguments->attention.add_numerics(*app);
  app->option_defaults()->group("Options");
  app->add_option("--rows", arguments->rows, "queries per head to measure")
      ->check(at_least_one())
      ->capture_default_str();
  app->add_option("--budgets", arguments->budgets,
                  "shares of the tokens whose V is repaired, such as 0 0.005 0.01")
      ->check(token_share());
  app->add_flag("--no-options", arguments->skip_options, "leave the other option values out");
  app->add_flag("--no-backend", arguments->skip_backend,
                "emulate the attention instead of running it on all queries");
  app->add_option("--json", arguments->json, "write everything measured to this file")
      ->check(file_path());
  app->add_option("--html", arguments->html, "write a page with plots to this file")
      ->check(file_path());
  return {app, [arguments, app] { return run_study(*arguments, quoted_command(*app)); }};
}

}  // namespace openvc::cli
