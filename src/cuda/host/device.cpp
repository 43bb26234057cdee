// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/host/device.hpp"

#include <cuda_runtime_api.h>

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

const DeviceInfo& device_info(int ordinal) {
  static std::vector<DeviceInfo> devices(static_cast<std::size_t>(device_count()));
  static OncePerDevice read;
  if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= devices.size()) {
    throw Error(ErrorCode::invalid_value, "device: there is no CUDA device " +
                                              std::to_string(ordinal) + "; this process sees " +
                                              std::to_string(devices.size()));
  }
  DeviceInfo& info = devices[static_cast<std::size_t>(ordinal)];
  read(ordinal, [&info, ordinal] {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal), "reading device properties");
    info = {ordinal, properties.name, properties.major, properties.minor,
            properties.multiProcessorCount};
  });
  return info;
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
