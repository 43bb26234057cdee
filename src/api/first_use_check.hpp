// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/backend.hpp"
#include "cpu/agreement.hpp"
#include "schedule/prepare_request.hpp"

// What a backend has to compute before it is trusted on a device: a second's work, the same in
// every process.
namespace openvc::api {

struct FirstUseCase {
  const char* name;
  schedule::Problem problem{};
  NumericOptions numerics{};
  std::vector<std::uint16_t> q{};     // [1, Sq, H, 128], bfloat16
  std::vector<std::uint16_t> k{};     // [1, Skv, H, 128]
  std::vector<std::uint16_t> v{};     // [1, Skv, H, 128]
  std::vector<cpu::Bounds> bounds{};  // of each head

  /// Of tensors in the host's memory.
  [[nodiscard]] schedule::PrepareRequest request() const;
};

/// A narrow head with residual columns beside a wide one, and V on axes.
std::vector<FirstUseCase> first_use_cases();

/// Where the backend's results on the device are further from the CPU backend's than its kernels
/// may be; empty if nowhere. Runs on a stream of its own, with memory that is not the caller's.
std::string first_use_fault(const Backend& backend, Device device);

}  // namespace openvc::api
