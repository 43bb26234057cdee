// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace openvc::cli {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

/// Arguments that parse but do not make sense together.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A subcommand and what it does once its arguments are parsed; the result is the exit status.
struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

// Each adds one subcommand to the program.
[[nodiscard]] Command add_info_command(CLI::App& program);
[[nodiscard]] Command add_check_command(CLI::App& program);
[[nodiscard]] Command add_run_command(CLI::App& program);
[[nodiscard]] Command add_error_command(CLI::App& program);
[[nodiscard]] Command add_bench_command(CLI::App& program);

}  // namespace openvc::cli
