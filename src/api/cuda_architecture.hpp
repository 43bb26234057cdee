// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "openvc/tensor_view.hpp"
#include "schedule/prepared_layout.hpp"

// What tells one CUDA backend from another.
namespace openvc::api {

/// Compute capability of a device: 10.3.
struct ComputeCapability {
  int major = 0;
  int minor = 0;
  bool operator==(const ComputeCapability&) const = default;

  [[nodiscard]] std::string text() const {
    return std::to_string(major) + "." + std::to_string(minor);
  }
};

/// A row of the table of CUDA backends.
struct CudaArchitecture {
  const char* name;  // "sm100"
  /// What the build has made of its kernels: "sm_100a", "sm_103a"; unused places are empty. An
  /// image runs on that very compute capability: none of them is compiled for a family.
  std::array<std::string_view, 3> images;
  bool run_on_hardware;  // its tests have passed on the device that it is made for
  schedule::PackedFormat format;
  void (*launch)(const schedule::PreparedView& inputs, const MutableTensorView& out,
                 float* log_sum_exp, void* stream);

  [[nodiscard]] std::vector<std::string> image_names() const;
  [[nodiscard]] bool runs_on(ComputeCapability device) const;
};

/// What the architectures of a build run on: "9.0 (sm90), 10.0 (sm100), 10.3 (sm100)".
std::string supported_capabilities(std::span<const CudaArchitecture> architectures);

}  // namespace openvc::api
