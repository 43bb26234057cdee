// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/host/stream_memory.hpp"

#include <cuda_runtime_api.h>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"

namespace openvc::cuda {

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

}  // namespace openvc::cuda
