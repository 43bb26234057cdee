// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/host/check.hpp"

namespace openvc::cuda::prepare {

/// When a kernel may start.
enum class LaunchOrder {
  after_stream,      // once everything before it in the stream has ended
  overlaps_previous  // while the kernel before it runs; it calls ptx::griddepcontrol_wait()
};

/// Queues a kernel with `shared_bytes` of dynamic shared memory on the current device.
template <class... Parameters>
void launch_with_memory(void (*kernel)(Parameters...), std::int64_t blocks, int threads,
                        std::size_t shared_bytes, LaunchOrder order, cudaStream_t stream,
                        const Parameters&... parameters) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = order == LaunchOrder::overlaps_previous ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, parameters...), "launching the input preparation");
}

/// Queues a kernel on the current device.
template <class... Parameters>
void launch_kernel(void (*kernel)(Parameters...), std::int64_t blocks, int threads,
                   LaunchOrder order, cudaStream_t stream, const Parameters&... parameters) {
  launch_with_memory(kernel, blocks, threads, 0, order, stream, parameters...);
}

}  // namespace openvc::cuda::prepare
