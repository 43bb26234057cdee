// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/host/check.hpp"
#include "machine/machine.hpp"

namespace openvc::cuda {

enum class LaunchOrder { after_stream, overlaps_previous };

struct LaunchShape {
  std::int64_t blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0;  // dynamic
};

template <class... Parameters>
void reserve_shared_memory(void (*)(Parameters...), std::size_t) {}

/// Runs a kernel to its end: what was launched before has ended, so a dependent launch is in order.
template <class... Parameters>
void launch_kernel(void (*kernel)(Parameters...), const LaunchShape& shape, LaunchOrder,
                   cudaStream_t, const Parameters&... parameters) {
  const model::Grid grid{static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.threads),
                         shape.shared_bytes};
  model::launch(grid, [&] { kernel(parameters...); });
}

template <class... Parameters>
void launch_kernel(void (*kernel)(Parameters...), std::int64_t blocks, int threads,
                   LaunchOrder order, cudaStream_t stream, const Parameters&... parameters) {
  launch_kernel(kernel, LaunchShape{blocks, threads}, order, stream, parameters...);
}

}  // namespace openvc::cuda
