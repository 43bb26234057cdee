// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "openvc/tensor_view.hpp"
#include "study/self_check.hpp"

namespace openvc::cli {

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

/// Complete calls on tensors in the device's memory, against exact attention on the CPU.
[[nodiscard]] std::vector<study::CheckResult> check_backend(const CheckTarget& target,
                                                            const study::SelfCheckOptions& options);

}  // namespace openvc::cli
