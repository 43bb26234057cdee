// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/host/device.hpp"

#include <cuda_runtime_api.h>

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda/host/check.hpp"

namespace openvc::cuda {

int device_count() noexcept {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return count;
}

const DeviceInfo* find_device(int ordinal) {
  static std::mutex mutex;
  static std::vector<std::optional<DeviceInfo>> devices;  // never resized once it has any
  const std::lock_guard lock(mutex);
  if (devices.empty()) devices.resize(static_cast<std::size_t>(device_count()));
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= devices.size()) return nullptr;
  std::optional<DeviceInfo>& info = devices[static_cast<std::size_t>(ordinal)];
  if (!info) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal), "reading device properties");
    info = {ordinal, properties.name, properties.major, properties.minor,
            properties.multiProcessorCount};
  }
  return &*info;
}

const DeviceInfo& device_info(int ordinal) {
  const DeviceInfo* info = find_device(ordinal);
  if (info == nullptr) {
    throw Error(ErrorCode::invalid_value,
                "device: cuda:" + std::to_string(ordinal) + "; expected one of the " +
                    std::to_string(device_count()) +
                    " CUDA devices that this process sees, counted from 0. Pass another ordinal.");
  }
  return *info;
}

DeviceGuard::DeviceGuard(int ordinal) {
  check(cudaGetDevice(&previous_), "reading the current device");
  if (previous_ == ordinal) {
    previous_ = -1;
  } else {
    check(cudaSetDevice(ordinal), "selecting the tensors' device");
  }
}

DeviceGuard::~DeviceGuard() {
  if (previous_ >= 0) (void)cudaSetDevice(previous_);
}

}  // namespace openvc::cuda
