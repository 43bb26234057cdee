// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/host/check.hpp"
#include "numerics/half.hpp"

// Inputs of the CUDA benchmarks, made on the device.
namespace openvc::benchmarks {

/// Standard normal bfloat16 numbers, by counter: the same for every launch configuration.
static __global__ void fill_normal(std::uint16_t* out, std::size_t count, std::uint64_t seed) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    std::uint64_t x = i + seed * 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    x ^= x >> 31;
    const float u = (static_cast<float>(x >> 40) + 0.5f) * 0x1p-24f;
    const float v = static_cast<float>(x & 0xFFFFFFu) * 0x1p-24f;
    out[i] = numerics::float_to_bfloat16(sqrtf(-2.0f * logf(u)) * cospif(2.0f * v));
  }
}

/// Device memory.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes) { cuda::check(cudaMalloc(&data_, bytes), "allocating"); }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  template <class T = std::byte>
  [[nodiscard]] T* get() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

}  // namespace openvc::benchmarks
