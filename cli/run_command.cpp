// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "input_options.hpp"
#include "io/safetensors.hpp"
#include "openvc/info.hpp"
#include "output.hpp"
#include "study/error_measure.hpp"
#include "study/error_study.hpp"
#include "study/report_text.hpp"
#include "study/tensors.hpp"

namespace openvc::cli {
namespace {

struct RunArguments {
  InputOptions input;
  AttentionArguments attention;
  double budget = 0.0;
  bool log_sum_exp = false;
  std::int64_t verified_rows = 0;
  std::filesystem::path output;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The output in the layout of a stored Q.
study::CapturedTensor output_like(const study::CapturedTensor& q) {
  study::CapturedTensor out = q;
  out.bytes.assign(q.bytes.size(), std::byte{});
  return out;
}

MutableTensorView mutable_view(study::CapturedTensor& tensor) {
  return {tensor.bytes.data(), tensor.type, Device{}, tensor.shape, tensor.strides};
}

void print_plans(const std::vector<HeadPlan>& plans) {
  std::map<std::string, std::size_t> counts;
  double work = 0.0;
  for (const HeadPlan& plan : plans) {
    ++counts[study::plan_phrase(plan)];
    work += study::added_work(plan) / static_cast<double>(plans.size());
  }
  fmt::print("Plan: {} more main-loop work on average\n", study::percent(work));
  for (const auto& [phrase, count] : counts) {
    fmt::print("  {:>4} head{} {}\n", count, count == 1 ? ": " : "s:", phrase);
  }
}

/// Relative L2 error of every head on evenly spaced queries.
void print_verification(const InputOptions::Input& input, const TensorView& out,
                        const AttentionOptions& options, std::int64_t row_count,
                        const Execution& execution) {
  const auto rows = study::sample_rows(out.shape[kSequence], row_count);
  const auto [batch, queries, heads, channels] = out.shape;
  const auto row_values = static_cast<std::size_t>(heads * channels);
  std::vector<double> exact(static_cast<std::size_t>(batch) * rows.size() * row_values);
  exact_attention(input.q(), input.k(), input.v(), rows, exact.data(), nullptr, options.mask,
                  options.softmax_scale, execution);
  std::vector<double> errors;
  std::vector<float> found(static_cast<std::size_t>(channels));
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      study::ErrorMeasure measure;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        study::load_row(out, b, rows[r], h, found);
        const std::vector<double> output(found.begin(), found.end());
        const std::size_t start = (static_cast<std::size_t>(b) * rows.size() + r) * row_values +
                                  static_cast<std::size_t>(h * channels);
        measure.add(output, std::span(exact).subspan(start, output.size()));
      }
      errors.push_back(measure.relative_l2());
    }
  }
  fmt::print("Error against float64 on {} queries per head: {} (RMS over heads), worst head {}\n",
             rows.size(), study::percent(study::root_mean_square(errors)),
             study::percent(*std::ranges::max_element(errors)));
}

void write_output(const RunArguments& arguments, const study::CapturedTensor& out,
                  const std::vector<float>& log_sum_exp, const AttentionOptions& options,
                  const std::string& note) {
  const auto [batch, queries, heads, channels] = out.shape;
  const bool batched = out.rank == 4;
  const bool heads_first = out.strides[kHead] > out.strides[kSequence];
  io::TensorEntry entry{.name = "out",
                        .type = io::StoredType::float32,
                        .shape = heads_first ? std::vector{heads, queries, channels}
                                             : std::vector{queries, heads, channels},
                        .bytes = out.bytes};
  if (out.type == ElementType::bfloat16) entry.type = io::StoredType::bfloat16;
  if (out.type == ElementType::float16) entry.type = io::StoredType::float16;
  io::TensorEntry sums{.name = "lse",
                       .type = io::StoredType::float32,
                       .shape = {heads, queries},
                       .bytes = std::as_bytes(std::span(log_sum_exp))};
  if (batched) {
    entry.shape.insert(entry.shape.begin(), batch);
    sums.shape.insert(sums.shape.begin(), batch);
  }
  std::vector<io::TensorEntry> entries = {entry};
  if (!log_sum_exp.empty()) entries.push_back(sums);
  const Info build = info();
  io::Metadata metadata = {
      {"openvc_version", build.version},
      {"contract_version", std::to_string(build.contract_version)},
      {"layout", heads_first ? (batched ? "BHSD" : "HSD") : (batched ? "BSHD" : "SHD")},
      {"causal", options.mask == Mask::causal ? "true" : "false"},
      {"budget", fmt::format("{}", arguments.budget)}};
  if (options.softmax_scale) metadata["softmax_scale"] = fmt::format("{}", *options.softmax_scale);
  if (!note.empty()) metadata["note"] = note;
  io::write_safetensors(arguments.output, entries, metadata);
  fmt::print("Output: {}\n", arguments.output.string());
}

int run_attention(const RunArguments& arguments) {
  require_outputs({{"--output", arguments.output}}, arguments.input.files());
  if (arguments.input.only_check()) return kExitSuccess;
  const int threads = arguments.attention.threads();
  const InputOptions::Input input = arguments.input.load(threads);
  const AttentionOptions options = arguments.attention.options(input.softmax_scale, input.causal);
  const Execution execution = arguments.attention.execution();

  auto start = std::chrono::steady_clock::now();
  const Prepared prepared = prepare_repair(input.q(), input.k(), input.v(), arguments.budget,
                                           options, arguments.log_sum_exp, execution);
  const double prepare_seconds = seconds_since(start);

  study::CapturedTensor out;
  if (input.from_file) {
    out = output_like(input.capture.q);
  } else {
    const TensorView q = input.q();
    out.type = q.type;
    out.shape = q.shape;
    out.strides = q.strides;
    out.bytes.resize(input.generated.q.bytes.size());
  }
  const auto [batch, queries, heads, channels] = out.shape;
  std::vector<float> log_sum_exp(
      arguments.log_sum_exp ? static_cast<std::size_t>(batch * heads * queries) : 0);
  start = std::chrono::steady_clock::now();
  attention_prepared(prepared, mutable_view(out),
                     arguments.log_sum_exp ? log_sum_exp.data() : nullptr, execution);
  const double attention_seconds = seconds_since(start);

  fmt::print("{}: {} queries x {} keys x {} heads{}, {}\n", input.name, study::grouped(queries),
             study::grouped(input.k().shape[kSequence]), heads,
             batch > 1 ? fmt::format(", batch {}", batch) : "", element_name(out.type));
  if (!input.details.empty()) fmt::print("Input: {}\n", study::printable(input.details));
  if (!input.note.empty()) fmt::print("Note: {}\n", input.note);
  fmt::print("Time: preparation {:.1f} ms, attention {:.1f} ms\n", 1e3 * prepare_seconds,
             1e3 * attention_seconds);
  print_plans(prepared.plans());
  if (prepared.repair_rows() > 0) {
    fmt::print("V repair: {} tokens per head\n", study::grouped(prepared.repair_rows()));
  }
  if (arguments.verified_rows > 0) {
    print_verification(input, out.view(), options, arguments.verified_rows, execution);
  }
  if (!arguments.output.empty()) write_output(arguments, out, log_sum_exp, options, input.note);
  return kExitSuccess;
}

}  // namespace

Command add_run_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand("run", "attention on tensors of a file");
  const auto arguments = std::make_shared<RunArguments>();
  arguments->input.add_files(*app);
  arguments->input.add_family(*app);
  arguments->attention.add(*app);
  arguments->attention.add_numerics(*app);
  app->option_defaults()->group("Options");
  app->add_option("-b,--repair-budget", arguments->budget,
                  "share of the tokens whose V is repaired")
      ->check(token_share())
      ->capture_default_str();
  app->add_flag("--lse", arguments->log_sum_exp, "compute the log-sum-exp, too");
  app->add_option("--verify", arguments->verified_rows,
                  "queries per head to compare with exact attention; 256 without a number")
      ->expected(0, 1)
      ->default_str("256")
      ->check(at_least_one());
  app->add_option("-o,--output", arguments->output, "write the output to this safetensors file")
      ->check(file_path());
  return {app, [arguments] { return run_attention(*arguments); }};
}

}  // namespace openvc::cli
