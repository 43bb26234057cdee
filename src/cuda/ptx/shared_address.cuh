// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace openvc::cuda::ptx {

/// cvta.to.shared (PTX ISA 9.0, 9.7.9): address of a shared-memory object inside the shared window,
/// as PTX operands want it.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace openvc::cuda::ptx
