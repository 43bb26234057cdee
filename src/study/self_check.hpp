// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <vector>

// Whether this build computes what it promises on this machine: minutes after the installation, not
// days after the first odd video.
namespace openvc::study {

struct Measurement {
  double measured = 0.0;
  double limit = 0.0;   ///< what `measured` may be at most
  std::string meaning;  ///< what is measured
};

struct CheckResult {
  std::string group;  ///< "codec", "accuracy", "identity"
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

/// A check that throws counts as failed; its message is the meaning then.
[[nodiscard]] std::vector<CheckResult> run_self_check(const SelfCheckOptions& options);

}  // namespace openvc::study
