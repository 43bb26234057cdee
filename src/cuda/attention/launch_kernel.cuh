// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "cuda/attention/kernel_config.hpp"
#include "cuda/attention/parameters.cuh"
#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/host/kernel_launch.hpp"
#include "schedule/work_queue.hpp"

namespace openvc::cuda {

/// What a launch has to know of a kernel besides its configuration.
struct KernelShape {
  int threads = 0;
  std::size_t shared_bytes = 0;
};

/// Queues a persistent attention kernel on the current device, which `device` describes: as many
/// clusters as run at the same time, or as there is work. Throws openvc::Error.
template <class Config>
void launch_persistent(void (*kernel)(Parameters), const KernelShape& shape,
                       const Parameters& parameters, const DeviceInfo& device,
                       cudaStream_t stream) {
  constexpr KernelConfig kConfig = Config::kValue;
  const auto reserve_shared_memory = [&] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shape.shared_bytes)),
          "reserving shared memory for the attention kernel");
  };
  const auto is_reserved = [&] {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kernel), "reading attributes of the attention kernel");
    return attributes.maxDynamicSharedSizeBytes >= static_cast<int>(shape.shared_bytes);
  };
  static OncePerDevice once;  // for each kernel: Config is the kernel's own
  once(device.ordinal, reserve_shared_memory);

  const schedule::WorkQueue queue(parameters.problem, Config::kShape.query_rows,
                                  kConfig.cluster_size);
  const std::int64_t clusters =
      std::min<std::int64_t>(queue.count, device.multiprocessors / kConfig.cluster_size);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * kConfig.cluster_size));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  std::array<cudaLaunchAttribute, 2> attributes{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(kConfig.cluster_size), 1, 1};
  // Blocks set themselves up while the kernel before ends, then wait for it.
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes.data();
  // Devices without the one have no clusters either.
  config.numAttrs = overlaps_launches(device) ? static_cast<unsigned>(attributes.size()) : 0;
  cudaError_t status = cudaLaunchKernelEx(&config, kernel, parameters);
  if (status == cudaErrorInvalidValue && !is_reserved()) {
    // The device has been reset: the reservation was part of its context.
    (void)cudaGetLastError();
    reserve_shared_memory();
    status = cudaLaunchKernelEx(&config, kernel, parameters);
  }
  check(status, "launching the attention kernel");
}

}  // namespace openvc::cuda
