// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "machine/access.hpp"

// Memory of the model's device, which is the host's.
namespace openvc::test {

/// Memory between two guards, at a multiple of 256 bytes. Every byte, the guards' included, starts
/// as `filler`.
class DeviceBuffer {
 public:
  DeviceBuffer(std::size_t bytes, std::uint8_t filler)
      : memory_(bytes + 2 * kGuard + kAlignment, std::byte{filler}),
        bytes_(bytes),
        filler_(filler) {
    const auto start = reinterpret_cast<std::uintptr_t>(memory_.data()) + kGuard;
    data_ = reinterpret_cast<std::byte*>((start + kAlignment - 1) / kAlignment * kAlignment);
    model::guard_memory(data_, bytes_, kGuard);
  }
  ~DeviceBuffer() { model::release_memory(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return bytes_; }

  void upload(const void* source, std::size_t bytes, std::size_t offset = 0) {
    std::memcpy(data_ + offset, source, bytes);
  }

  [[nodiscard]] std::vector<std::byte> download() const { return {data_, data_ + bytes_}; }

  [[nodiscard]] bool guards_untouched() const {
    const auto untouched = [this](std::byte byte) { return byte == std::byte{filler_}; };
    return std::all_of(data_ - kGuard, data_, untouched) &&
           std::all_of(data_ + bytes_, data_ + bytes_ + kGuard, untouched);
  }

 private:
  static constexpr std::size_t kGuard = 4096;
  static constexpr std::size_t kAlignment = 256;

  std::vector<std::byte> memory_;
  std::byte* data_;
  std::size_t bytes_;
  std::uint8_t filler_;
};

}  // namespace openvc::test
