// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/host/check.hpp"
#include "cuda/host/device.hpp"
#include "cuda/sm90/kernel.cuh"
#include "cuda/sm90/launch_kernel.hpp"

// Definition of the launcher: whoever includes this compiles the kernel, which takes minutes.
namespace openvc::cuda::sm90 {

template <class Config>
void launch_kernel(const Parameters& parameters, const DeviceInfo& device, cudaStream_t stream) {
  constexpr KernelConfig kConfig = Config::kValue;
  constexpr std::size_t kSharedBytes = sizeof(Storage<Config>) + alignof(Storage<Config>);
  static_assert(kSharedBytes <= kSharedMemoryLimit);
  const auto kernel = attention_kernel<Config>;
  const auto reserve_shared_memory = [kernel] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
          "reserving shared memory for the attention kernel");
  };
  const auto is_reserved = [kernel] {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kernel), "reading attributes of the attention kernel");
    return attributes.maxDynamicSharedSizeBytes >= static_cast<int>(kSharedBytes);
  };
  static OncePerDevice once;
  once(device.ordinal, reserve_shared_memory);

  const schedule::WorkQueue queue(parameters.problem, kRowsPerBlock, kConfig.cluster_size);
  const std::int64_t clusters =
      std::min<std::int64_t>(queue.count, device.multiprocessors / kConfig.cluster_size);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * kConfig.cluster_size));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  std::array<cudaLaunchAttribute, 2> attributes{};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {static_cast<unsigned>(kConfig.cluster_size), 1, 1};
  // Blocks set themselves up while the kernel before ends, then wait for it.
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attributes.data();
  config.numAttrs = static_cast<unsigned>(attributes.size());
  cudaError_t status = cudaLaunchKernelEx(&config, kernel, parameters);
  if (status == cudaErrorInvalidValue && !is_reserved()) {
    // The device has been reset: the reservation was part of its context.
    (void)cudaGetLastError();
    reserve_shared_memory();
    status = cudaLaunchKernelEx(&config, kernel, parameters);
  }
  check(status, "launching the attention kernel");
}

}  // namespace openvc::cuda::sm90
