// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/host/device_copy.hpp"

#include <cuda_runtime_api.h>

#include "cuda/host/capture.hpp"
#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/host/own_stream.hpp"
#include "cuda/host/stream_memory.hpp"

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

bool is_capturing(int device, void* stream) {
  const DeviceGuard guard(device);
  return is_capturing(static_cast<cudaStream_t>(stream));
}

void on_own_stream(int device, const std::function<void(void* stream)>& work) {
  const DeviceGuard guard(device);
  const RelaxedCapture relaxed;
  const OwnStream stream;
  work(stream.get());
}

std::shared_ptr<std::byte> upload(std::span<const std::byte> bytes, int device, void* stream) {
  const DeviceGuard guard(device);
  Execution execution;
  execution.stream = stream;
  std::shared_ptr<std::byte> copy = allocate(bytes.size(), device, execution);
  const auto queue = static_cast<cudaStream_t>(stream);
  check(cudaMemcpyAsync(copy.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice, queue),
        "copying to the device");
  check(cudaStreamSynchronize(queue), "waiting for a copy to the device");
  return copy;
}

std::vector<std::byte> download(const std::byte* bytes, std::size_t size, int device,
                                void* stream) {
  const DeviceGuard guard(device);
  std::vector<std::byte> copy(size);
  const auto queue = static_cast<cudaStream_t>(stream);
  check(cudaMemcpyAsync(copy.data(), bytes, size, cudaMemcpyDeviceToHost, queue),
        "copying from the device");
  check(cudaStreamSynchronize(queue), "waiting for the device");
  return copy;
}

}  // namespace openvc::cuda
