// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/host/stream_memory.hpp"

#include <new>

namespace openvc::cuda {

std::shared_ptr<std::byte> allocate(std::size_t bytes, int, const Execution& execution) {
  if (execution.allocate) return execution.allocate(bytes);
  constexpr std::align_val_t kAlignment{kMemoryAlignment};
  auto* memory = static_cast<std::byte*>(::operator new(bytes, kAlignment));
  return {memory, [](std::byte* p) { ::operator delete(p, kAlignment); }};
}

}  // namespace openvc::cuda
