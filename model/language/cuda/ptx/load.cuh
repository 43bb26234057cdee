// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "machine/barriers.hpp"

namespace openvc::cuda::ptx {

inline void check_alignment(const void* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % sizeof(uint4) != 0) {
    throw model::Fault("an access of 16 bytes to an address that is no multiple of 16");
  }
}

inline uint4 ld_global_v4(const void* address, bool present) {
  if (!present) return uint4{};
  check_alignment(address);
  return *static_cast<const uint4*>(address);
}

inline void cp_async_16(std::uint32_t destination, const void* source, bool present) {
  void* target = model::shared_pointer(destination, sizeof(uint4));
  check_alignment(target);
  if (present) check_alignment(source);
  model::copy_asynchronously(target, source, sizeof(uint4), present);
}
inline void cp_async_commit_group() { model::commit_copies(); }
template <int kPending>
void cp_async_wait_group() {
  model::wait_for_copies(kPending);
}

inline void cp_async_mbarrier_arrive_noinc(std::uint32_t barrier) {
  model::arrive_behind_copies(barrier);
}

inline void pin_address(const void*&) {}

}  // namespace openvc::cuda::ptx
