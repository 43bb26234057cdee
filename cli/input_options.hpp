// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "openvc/attention.hpp"
#include "output.hpp"
#include "study/capture.hpp"
#include "study/tensors.hpp"

// Arguments that several commands share.
namespace openvc::cli {

/// Accepts whole numbers from 1 on.
[[nodiscard]] CLI::Validator at_least_one();
[[nodiscard]] CLI::Validator thread_count();
/// Accepts shares of tokens: 0 <= x < 1.
[[nodiscard]] CLI::Validator token_share();

/// Which tensors: a file or a synthetic family.
class InputOptions {
 public:
  void add_files(CLI::App& command);
  void add_family(CLI::App& command);

  /// The files that are read, and those that they were converted from.
  [[nodiscard]] std::vector<NamedPath> files() const;
  /// Whether the command stops before it reads anything: a front end wants to know whether the
  /// arguments are right before it converts files.
  [[nodiscard]] bool only_check() const { return only_check_; }

  /// Tensors in memory, and what is known about them.
  struct Input {
    study::Capture capture;    // of a file
    study::Tensors generated;  // of a family
    bool from_file = false;
    std::string name;
    std::string details;
    std::string note;  // what of the recorded call cannot be computed; empty if nothing
    std::optional<float> softmax_scale;  // that the file names
    std::optional<bool> causal;

    [[nodiscard]] TensorView q() const { return from_file ? capture.q.view() : generated.q.view(); }
    [[nodiscard]] TensorView k() const { return from_file ? capture.k.view() : generated.k.view(); }
    [[nodiscard]] TensorView v() const { return from_file ? capture.v.view() : generated.v.view(); }
  };

  /// Warns on standard error where the result has a note.
  [[nodiscard]] Input load(int threads) const;

 private:
  /// Refuses what describes the other kind of input: it would be ignored.
  void require_fitting_details() const;
  [[nodiscard]] Input load_files() const;
  [[nodiscard]] Input load_family(int threads) const;
  /// The capture; errors name the files that the user gave.
  [[nodiscard]] study::Capture load_named(const study::CaptureRequest& request) const;

  study::CaptureRequest request_;
  std::vector<std::filesystem::path> converted_from_;
  bool only_check_ = false;
  std::vector<const CLI::Option*> family_details_;  // all that say more about --family
  std::vector<const CLI::Option*> file_details_;    // .. and about --input
  std::string layout_;
  std::string family_;
  std::int64_t tokens_ = 4096;
  std::optional<std::int64_t> keys_;
  std::int64_t heads_ = 2;
  std::int64_t batch_ = 1;
  std::uint64_t seed_ = 0;
  std::string type_ = "bfloat16";
};

/// How attention is computed.
class AttentionArguments {
 public:
  void add(CLI::App& command);
  void add_numerics(CLI::App& command);

  /// What the file says stands in where nothing was given.
  [[nodiscard]] AttentionOptions options(std::optional<float> stored_scale = {},
                                         std::optional<bool> stored_causal = {}) const;
  [[nodiscard]] int threads() const { return threads_; }
  [[nodiscard]] Execution execution() const;

 private:
  bool causal_ = false;
  const CLI::Option* causal_flag_ = nullptr;
  std::optional<float> softmax_scale_;
  KeyOrder key_order_ = KeyOrder::mid_window;
  int threads_ = 0;
  NumericOptions numerics_{};
};

/// The words of the command line, for a report that says how it was made.
[[nodiscard]] std::string quoted_command(const CLI::App& command);

}  // namespace openvc::cli
