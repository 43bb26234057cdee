// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "command.hpp"
#include "input_options.hpp"
#include "openvc/attention.hpp"
#include "openvc/info.hpp"
#include "output.hpp"
#include "progress_meter.hpp"
#include "study/error_measure.hpp"
#include "study/families.hpp"
#include "study/report_text.hpp"

namespace openvc::cli {
namespace {

struct BenchArguments {
  std::vector<std::int64_t> tokens = {1'024, 4'096};
  std::int64_t heads = 8;
  std::int64_t batch = 1;
  int repeats = 10;
  std::string family = "video_field";
  AttentionArguments attention;
  std::filesystem::path json;
};

/// Milliseconds of a repeated call.
struct Timing {
  double p10 = 0.0;
  double p50 = 0.0;
  double p90 = 0.0;
};

struct Row {
  std::int64_t tokens = 0;
  Timing complete;
  Timing prepared;
  double flops = 0.0;  // of the two matrix products
};

template <class Call>
Timing measure(int repeats, const Call& call, study::ProgressTracker& tracker) {
  call();  // warms caches, threads and the clock
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    call();
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
    tracker.advance(1.0);
  }
  std::ranges::sort(times);
  return {study::quantile(times, 0.1), study::quantile(times, 0.5), study::quantile(times, 0.9)};
}

bool is_causal(const BenchArguments& arguments) {
  return arguments.attention.options().mask == Mask::causal;
}

double product_flops(const BenchArguments& arguments, std::int64_t tokens) {
  constexpr double kFlopsPerPair = 4.0 * 128.0;  // a multiplication and an addition, twice
  const double pairs = is_causal(arguments)
                           ? 0.5 * static_cast<double>(tokens) * static_cast<double>(tokens + 1)
                           : static_cast<double>(tokens) * static_cast<double>(tokens);
  return kFlopsPerPair * pairs * static_cast<double>(arguments.heads * arguments.batch);
}

Row bench(const BenchArguments& arguments, std::int64_t tokens, study::ProgressTracker& tracker) {
  const int threads = arguments.attention.threads();
  const study::Tensors in =
      study::generate(arguments.family, {arguments.batch, tokens, tokens, arguments.heads},
                      ElementType::bfloat16, 0, threads);
  const AttentionOptions options = arguments.attention.options();
  const Execution execution = arguments.attention.execution();
  study::OwnedTensor out(in.q.type, in.q.shape);
  Row row;
  row.tokens = tokens;
  row.flops = product_flops(arguments, tokens);
  row.complete = measure(
      arguments.repeats,
      [&] {
        attention(in.q.view(), in.k.view(), in.v.view(), out.mutable_view(), nullptr, options,
                  execution);
      },
      tracker);
  const Prepared prepared =
      prepare(in.q.view(), in.k.view(), in.v.view(), options, false, execution);
  row.prepared = measure(
      arguments.repeats,
      [&] { attention_prepared(prepared, out.mutable_view(), nullptr, execution); }, tracker);
  return row;
}

double gigaflops(const Row& row, const Timing& timing) { return row.flops / timing.p50 * 1e-6; }

int used_threads(const BenchArguments& arguments, const Info& build) {
  const int asked = arguments.attention.threads();
  return asked > 0 ? asked : build.cpu_threads;
}

void print_table(const BenchArguments& arguments, const std::vector<Row>& rows) {
  const Info build = info();
  fmt::print("Open-VC Attention {} on the CPU ({}), threads: {}; {} heads, batch {}, {}\n\n",
             build.version, build.cpu_simd_target, used_threads(arguments, build), arguments.heads,
             arguments.batch, arguments.family);
  fmt::print("{:>9}  {:>35}  {:>35}\n", "", "complete call", "prepared call");
  fmt::print("{:>9}  {:>8} {:>8} {:>8} {:>8}  {:>8} {:>8} {:>8} {:>8}\n", "tokens", "p10 ms",
             "p50 ms", "p90 ms", "GFLOP/s", "p10 ms", "p50 ms", "p90 ms", "GFLOP/s");
  for (const Row& row : rows) {
    fmt::print("{:>9}", study::grouped(row.tokens));
    for (const Timing& timing : {row.complete, row.prepared}) {
      fmt::print("  {:>8.2f} {:>8.2f} {:>8.2f} {:>8.1f}", timing.p10, timing.p50, timing.p90,
                 gigaflops(row, timing));
    }
    fmt::print("\n");
  }
}

nlohmann::ordered_json to_json(const Row& row, const Timing& timing) {
  return {{"p10_ms", timing.p10},
          {"p50_ms", timing.p50},
          {"p90_ms", timing.p90},
          {"gflops", gigaflops(row, timing)}};
}

std::string to_json(const BenchArguments& arguments, const std::vector<Row>& rows) {
  const Info build = info();
  nlohmann::ordered_json json = {{"schema", "openvc.bench"},
                                 {"schema_version", 1},
                                 {"version", build.version},
                                 {"contract_version", build.contract_version},
                                 {"device", "cpu"},
                                 {"cpu_simd_target", build.cpu_simd_target},
                                 {"threads", used_threads(arguments, build)},
                                 {"hardware_threads", std::thread::hardware_concurrency()},
                                 {"heads", arguments.heads},
                                 {"batch", arguments.batch},
                                 {"causal", is_causal(arguments)},
                                 {"family", arguments.family},
                                 {"repeats", arguments.repeats}};
  json["results"] = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    json["results"].push_back({{"tokens", row.tokens},
                               {"complete_call", to_json(row, row.complete)},
                               {"prepared_call", to_json(row, row.prepared)}});
  }
  return json.dump(1) + "\n";
}

int run_bench(const BenchArguments& arguments) {
  require_outputs({{"--json", arguments.json}});
  std::vector<Row> rows;
  {
    ProgressMeter meter;
    study::ProgressTracker tracker(
        2.0 * arguments.repeats * static_cast<double>(arguments.tokens.size()), meter.callback());
    tracker.begin("benchmark");
    for (const std::int64_t tokens : arguments.tokens) {
      rows.push_back(bench(arguments, tokens, tracker));
      // After every row: a long benchmark that is interrupted keeps what it has.
      if (!arguments.json.empty()) write_text(arguments.json, to_json(arguments, rows));
    }
  }
  print_table(arguments, rows);
  return kExitSuccess;
}

}  // namespace

Command add_bench_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand("bench", "time of attention on this machine");
  const auto arguments = std::make_shared<BenchArguments>();
  std::vector<std::string> families;
  for (const study::Family& family : study::families()) families.emplace_back(family.name);
  app->add_option("--tokens", arguments->tokens, "sequence lengths")
      ->check(at_least_one())
      ->delimiter(',');
  app->add_option("--heads", arguments->heads, "heads")
      ->check(at_least_one())
      ->capture_default_str();
  app->add_option("--batch", arguments->batch, "batch entries")
      ->check(at_least_one())
      ->capture_default_str();
  app->add_option("--repeats", arguments->repeats, "timed calls of each kind")
      ->check(at_least_one())
      ->capture_default_str();
  app->add_option("--family", arguments->family, "kind of synthetic input")
      ->check(CLI::IsMember(families))
      ->capture_default_str();
  arguments->attention.add(*app);
  arguments->attention.add_numerics(*app);
  app->option_defaults()->group("Options");
  app->add_option("--json", arguments->json, "write the timings to this file")->check(file_path());
  return {app, [arguments] { return run_bench(*arguments); }};
}

}  // namespace openvc::cli
