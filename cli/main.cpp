// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "command.hpp"
#include "io/atomic_file_writer.hpp"
#include "openvc/version.hpp"
#include "output.hpp"

namespace openvc::cli {
namespace {

constexpr std::string_view kProgram = "open-vc-attn";
constexpr int kExitSignalBase = 128;  // as shells report death by signal n: 128 + n
constexpr std::string_view kOutOfMemory = "out of memory; use fewer tokens or heads";

/// The program answers to open-vc-attn-check and the like, too: names that users of other
/// implementations know.
std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> all;
  const std::string name = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : "";
  const std::string prefix = std::string(kProgram) + "-";
  if (name.starts_with(prefix)) all.push_back(name.substr(prefix.size()));
  for (int i = 1; i < argc; ++i) all.emplace_back(argv[i]);
  return all;
}

int complain(std::string_view message, int status) {
  // If nobody can read it, the status still tells.
  static_cast<void>(print_error(message));
  return status;
}

/// The parser would only say that a command is missing.
void require_known_command(const std::vector<Command>& commands, const std::string& word) {
  if (word.starts_with('-')) return;
  std::string names;
  for (const Command& command : commands) {
    if (command.app->get_name() == word) return;
    names += (names.empty() ? "" : ", ") + command.app->get_name();
  }
  throw UsageError(fmt::format("unknown command '{}'; the commands are {}", word, names));
}

int run(int argc, char** argv) {
  CLI::App program("FP8 attention for long video sequences: run it, check it, measure its error.",
                   std::string(kProgram));
  program.set_version_flag("--version", std::string(kVersion));
  program.require_subcommand(1);
  const std::vector<Command> commands = {add_info_command(program), add_check_command(program),
                                         add_run_command(program), add_error_command(program),
                                         add_bench_command(program)};
  const std::vector<std::string> words = arguments(argc, argv);
  if (words.empty()) {
    std::fputs(program.help().c_str(), stderr);
    return kExitUsage;
  }
  require_known_command(commands, words.front());
  try {
    // The parser takes its arguments from the end.
    std::vector<std::string> reversed(words.rbegin(), words.rend());
    program.parse(reversed);
  } catch (const CLI::ParseError& error) {
    // Help and version arrive here, too, with the status 0.
    if (error.get_exit_code() == 0) return program.exit(error);
    return complain(fmt::format("{}\nRun with --help for the arguments.", error.what()),
                    kExitUsage);
  }
  for (const Command& command : commands) {
    if (command.app->parsed()) return command.run();
  }
  return kExitUsage;
}

/// Ends the program at once, without the files that it was about to write.
extern "C" void end_by_signal(int signal) {
  io::remove_unfinished_files();
  ::_exit(kExitSignalBase + signal);
}

void end_cleanly_on_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    // What the parent process ignores stays ignored: nohup, jobs in the background.
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = end_by_signal;
    ::sigaction(signal, &action, nullptr);
  }
}

}  // namespace
}  // namespace openvc::cli

int main(int argc, char** argv) {
  using namespace openvc::cli;
  end_cleanly_on_signals();
  try {
    prepare_standard_streams();
    const int status = run(argc, argv);
    flush_standard_output();
    require_warnings_shown();
    return status;
  } catch (const UsageError& error) {
    return complain(error.what(), kExitUsage);
  } catch (const std::bad_alloc&) {
    return complain(kOutOfMemory, kExitFailure);
  } catch (const std::length_error&) {
    // A vector that no memory could hold.
    return complain(kOutOfMemory, kExitFailure);
  } catch (const std::system_error& error) {
    // Printing a text that is longer than the buffer.
    const bool printing = std::ferror(stdout) != 0;
    return complain(printing ? output_lost_message(error.code().message()) : error.what(),
                    kExitFailure);
  } catch (const std::exception& error) {
    return complain(error.what(), kExitFailure);
  }
}
