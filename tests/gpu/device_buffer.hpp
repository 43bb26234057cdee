// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/host/check.hpp"

namespace openvc::test {

/// Device memory between two guards. Every byte, the guards' included, starts as `filler`.
class DeviceBuffer {
 public:
  DeviceBuffer(std::size_t bytes, std::uint8_t filler) : bytes_(bytes), filler_(filler) {
    cuda::check(cudaMalloc(&allocation_, bytes + 2 * kGuard), "allocating a test buffer");
    cuda::check(cudaMemset(allocation_, filler, bytes + 2 * kGuard), "filling a test buffer");
  }
  ~DeviceBuffer() { cudaFree(allocation_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(allocation_) + kGuard; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

  void upload(const void* source, std::size_t bytes, std::size_t offset = 0) {
    cuda::check(cudaMemcpy(data() + offset, source, bytes, cudaMemcpyHostToDevice), "uploading");
  }

  [[nodiscard]] std::vector<std::byte> download() const { return copy(data(), bytes_); }

  [[nodiscard]] bool guards_untouched() const {
    for (const std::byte* guard : {data() - kGuard, data() + bytes_}) {
      for (const std::byte byte : copy(guard, kGuard)) {
        if (byte != std::byte{filler_}) return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 4096;

  static std::vector<std::byte> copy(const std::byte* source, std::size_t bytes) {
    std::vector<std::byte> host(bytes);
    cuda::check(cudaMemcpy(host.data(), source, bytes, cudaMemcpyDeviceToHost), "downloading");
    return host;
  }

  void* allocation_ = nullptr;
  std::size_t bytes_;
  std::uint8_t filler_;
};

}  // namespace openvc::test
