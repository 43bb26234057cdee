// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/host/stream_memory.hpp"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"

namespace openvc::cuda {

namespace {

std::shared_ptr<std::byte> allocate_on_stream(std::size_t bytes, int device, void* stream) {
  const DeviceGuard guard(device);
  const auto queue = static_cast<cudaStream_t>(stream);
  void* memory = nullptr;
  check(cudaMallocAsync(&memory, bytes, queue), "allocating device memory");
  return {static_cast<std::byte*>(memory), [queue](std::byte* block) {
            // Nobody could handle a failure here; it would show up in the next call on the device.
            (void)cudaFreeAsync(block, queue);
          }};
}

}  // namespace

std::shared_ptr<std::byte> allocate(std::size_t bytes, int device, const Execution& execution) {
  if (!execution.allocate) return allocate_on_stream(bytes, device, execution.stream);
  std::shared_ptr<std::byte> memory = execution.allocate(bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.get());
  if (memory == nullptr || address % kMemoryAlignment != 0) {
    throw Error(ErrorCode::invalid_value,
                "execution.allocate: returned address " + std::to_string(address) + " for " +
                    std::to_string(bytes) + " bytes; expected device memory at a multiple of " +
                    std::to_string(kMemoryAlignment) +
                    ". Throw std::bad_alloc where there is no memory.");
  }
  return memory;
}

}  // namespace openvc::cuda
