// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include "cuda/host/check.hpp"
#include "cuda/prepare/arguments.cuh"

namespace openvc::cuda::prepare {

/// When a kernel may start.
enum class LaunchOrder {
  after_stream,      // once everything before it in the stream has ended
  overlaps_previous  // while the kernel before it runs; it calls ptx::griddepcontrol_wait()
};

inline void launch_kernel(void (*kernel)(Arguments), dim3 grid, int threads, LaunchOrder order,
                          const Arguments& arguments, cudaStream_t stream) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = order == LaunchOrder::overlaps_previous ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, arguments), "launching the input preparation");
}

}  // namespace openvc::cuda::prepare
