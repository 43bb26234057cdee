// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

#include "openvc/options.hpp"

namespace openvc::cuda {

/// What Execution::allocate promises, in bytes.
inline constexpr std::size_t kMemoryAlignment = 256;

/// Device memory that kernels on the stream of `execution` can use at once: from its allocator, or
/// by cudaMallocAsync, freed in the order of the stream. Throws openvc::Error, also for memory that
/// an allocator should not have returned.
std::shared_ptr<std::byte> allocate(std::size_t bytes, int device, const Execution& execution);

}  // namespace openvc::cuda
