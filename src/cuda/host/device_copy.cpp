// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/host/device_copy.hpp"

#include <cuda_runtime_api.h>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"

namespace openvc::cuda {

std::shared_ptr<std::byte> copy_to_device(std::span<const std::byte> bytes, int device) {
  const DeviceGuard guard(device_info(device).ordinal);
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes.size()), "allocating device memory");
  // Nobody could handle a failure to free; it would show up in the next call on the device.
  std::shared_ptr<std::byte> copy(static_cast<std::byte*>(memory),
                                  [](std::byte* block) { (void)cudaFree(block); });
  check(cudaMemcpy(copy.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
        "copying to the device");
  // The copy of pageable memory may still be on its way.
  check(cudaDeviceSynchronize(), "waiting for a copy to the device");
  return copy;
}

std::vector<std::byte> copy_to_host(const std::byte* bytes, std::size_t size, int device) {
  const DeviceGuard guard(device_info(device).ordinal);
  check(cudaDeviceSynchronize(), "waiting for the device");
  std::vector<std::byte> copy(size);
  check(cudaMemcpy(copy.data(), bytes, size, cudaMemcpyDeviceToHost), "copying from the device");
  return copy;
}

}  // namespace openvc::cuda
