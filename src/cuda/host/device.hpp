// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace openvc::cuda {

/// What a launch needs to know about a device.
struct DeviceInfo {
  int ordinal = 0;
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
};

/// Number of usable devices; 0 without a driver. Never throws, initialises no context.
int device_count() noexcept;

/// Attributes of a device, read once per process; null if there is no such device. CUDA fixes which
/// devices a process sees when it first finds any, and so does this.
const DeviceInfo* find_device(int ordinal);

/// The same where the caller knows that the device exists; throws openvc::Error otherwise.
const DeviceInfo& device_info(int ordinal);

/// Work that a process has to do once per device, by whichever thread comes first. Work that throws
/// is done again by the next call.
class OncePerDevice {
 public:
  /// `ordinal` must name a device; see device_info().
  template <class Work>
  void operator()(int ordinal, Work&& work) {
    std::call_once(done_.at(static_cast<std::size_t>(ordinal)), std::forward<Work>(work));
  }

 private:
  std::vector<std::once_flag> done_{static_cast<std::size_t>(device_count())};
};

/// Makes a device current for a scope and restores the previous one.
class DeviceGuard {
 public:
  explicit DeviceGuard(int ordinal);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = -1;
};

}  // namespace openvc::cuda
