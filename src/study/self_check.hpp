// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "openvc/tensor_view.hpp"

// Whether this build computes what it promises on this machine: minutes after the installation, not
// days after the first odd video.
namespace openvc::study {

struct Measurement {
  double measured = 0.0;
  double limit = 0.0;   ///< what `measured` may be at most
  std::string meaning;  ///< what is measured
};

struct CheckResult {
  std::string group;  ///< "codec", "accuracy", "identity", "call"
  std::string name;
  bool passed = false;
  Measurement value{};
};

struct SelfCheckOptions {
  bool smoke = false;  ///< shorter sequences: seconds instead of minutes
  int threads = 0;
  /// Called after every check.
  std::function<void(const CheckResult&)> finished{};
};

/// A backend and the device that it is checked on.
struct CheckTarget {
  std::string backend;  ///< "cpu", "sm90"; empty if no backend serves the device
  Device device{};
  std::string device_name{};  ///< of a GPU
  std::string refusal{};      ///< why the device is not checked; empty if it is

  /// "sm90 on cuda:0 (NVIDIA H200)".
  [[nodiscard]] std::string label() const;
};

/// The CPU, then every CUDA device that this process sees.
[[nodiscard]] std::vector<CheckTarget> check_targets();

/// Complete calls on tensors in the device's memory, against exact attention on the CPU; for the
/// CPU also the numerics and the parts of the library that every backend shares. A check that
/// throws counts as failed; its message is the meaning then.
[[nodiscard]] std::vector<CheckResult> run_self_check(const CheckTarget& target,
                                                      const SelfCheckOptions& options);

}  // namespace openvc::study
