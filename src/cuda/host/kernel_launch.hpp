// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"

namespace openvc::cuda {

/// When a kernel may start.
enum class LaunchOrder {
  after_stream,      // once everything before it in the stream has ended
  overlaps_previous  // while the kernel before it runs; it calls ptx::griddepcontrol_wait()
};

/// Whether the device can: compute capability 9.0. On others the order of the stream is kept.
inline bool overlaps_launches(const DeviceInfo& device) { return device.major >= 9; }

struct LaunchShape {
  std::int64_t blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0;  // dynamic
};

/// Lets a kernel have more dynamic shared memory on the current device than every kernel may.
template <class... Parameters>
void reserve_shared_memory(void (*kernel)(Parameters...), std::size_t bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)),
        "reserving shared memory of a kernel");
}

/// Queues a kernel on the current device.
template <class... Parameters>
void launch_kernel(void (*kernel)(Parameters...), const LaunchShape& shape, LaunchOrder order,
                   cudaStream_t stream, const Parameters&... parameters) {
  int ordinal = 0;
  check(cudaGetDevice(&ordinal), "reading the current device");
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs =
      order == LaunchOrder::overlaps_previous && overlaps_launches(device_info(ordinal)) ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, parameters...), "launching a kernel");
}

template <class... Parameters>
void launch_kernel(void (*kernel)(Parameters...), std::int64_t blocks, int threads,
                   LaunchOrder order, cudaStream_t stream, const Parameters&... parameters) {
  launch_kernel(kernel, LaunchShape{blocks, threads}, order, stream, parameters...);
}

}  // namespace openvc::cuda
