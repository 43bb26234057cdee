// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/host/environment.hpp"

#include <cuda_runtime_api.h>

#include "cuda/host/driver_version.hpp"

namespace openvc::cuda {
namespace {

/// 13020 is 13.2; 0, which stands for "none", is empty.
std::string version_text(int version) {
  if (version == 0) return {};
  constexpr int kMajor = 1000;
  constexpr int kMinor = 10;
  return std::to_string(version / kMajor) + "." + std::to_string(version % kMajor / kMinor);
}

std::string device_problem(const Environment& found) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return {};
  (void)cudaGetLastError();
  if (found.driver.empty()) {
    return "no NVIDIA driver is installed, or it is hidden from this process (libcuda.so.1)";
  }
  if (status == cudaErrorInsufficientDriver) {
    return "the driver serves CUDA " + found.driver + ", this build needs CUDA " + found.runtime +
           ": update the driver";
  }
  if (status == cudaSuccess || status == cudaErrorNoDevice) {
    return "the driver finds no device; CUDA_VISIBLE_DEVICES may hide it";
  }
  return std::string("the driver reports ") + cudaGetErrorName(status) + " (" +
         cudaGetErrorString(status) + ")";
}

}  // namespace

Environment environment() {
  Environment found;
  int version = 0;
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) found.runtime = version_text(version);
  version = 0;
  if (cudaDriverGetVersion(&version) == cudaSuccess) found.driver = version_text(version);
  found.driver_package = driver_version();
  found.problem = device_problem(found);
  return found;
}

}  // namespace openvc::cuda
