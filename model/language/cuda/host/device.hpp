// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

// The device of the model.
namespace openvc::cuda {

struct DeviceInfo {
  int ordinal = 0;
  std::string name = "model";
  int major = 9;  // compute capability
  int minor = 0;
  int multiprocessors = 3;  ///< few, so that kernels whose blocks stay have many tiles for each
};

inline int device_count() noexcept { return 1; }

inline const DeviceInfo& device_info(int) {
  static const DeviceInfo kModel;
  return kModel;
}

class OncePerDevice {
 public:
  template <class Work>
  void operator()(int, const Work& work) {
    if (done_) return;
    work();
    done_ = true;
  }

 private:
  bool done_ = false;
};

class DeviceGuard {
 public:
  explicit DeviceGuard(int) {}
};

}  // namespace openvc::cuda
