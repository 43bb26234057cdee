// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gpu/attention_fixture.hpp"

namespace openvc::test {

/// An attention problem on the device, for many launches.
class AttentionScene {
 public:
  static constexpr const char* kOtherResult = "no fault, and another result";

  explicit AttentionScene(const AttentionCase& c)
      : host_(c, make_tensors(c)),
        device_(host_),
        out_(c.problem, c.type),
        kernel_(*c.kernel),
        expected_(bytes_of_launch()) {}

  /// The message of the fault by a schedule, or that the bytes are not those of the first launch;
  /// "" without either.
  std::string run(const model::Schedule& schedule) {
    model::set_schedule(schedule);
    try {
      if (bytes_of_launch() == expected_) return {};
    } catch (const model::Fault& fault) {
      return fault.what();
    }
    return kOtherResult;
  }

 private:
  std::vector<std::byte> bytes_of_launch() {
    out_.clear();
    run_on_device(device_.view(), out_, true, nullptr, kernel_);
    return out_.bytes();
  }

  HostPrepared host_;
  DevicePrepared device_;
  DeviceOutput out_;
  const AttentionKernel& kernel_;
  std::vector<std::byte> expected_;
};

}  // namespace openvc::test
