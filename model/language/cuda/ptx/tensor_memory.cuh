// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "machine/engines.hpp"

namespace openvc::cuda::ptx {

inline constexpr int kTensorMemoryColumns = 512;
inline constexpr int kTensorMemoryLanes = 128;
inline constexpr std::uint32_t kTensorMemoryLane = 1u << 16;

template <int kColumns>
void tcgen05_alloc(std::uint32_t shared_destination) {
  model::allocate_columns(kColumns, shared_destination);
}
inline void tcgen05_relinquish_alloc_permit() { model::relinquish_allocation(); }
template <int kColumns>
void tcgen05_dealloc(std::uint32_t address) {
  model::free_columns(address, kColumns);
}

inline void tcgen05_fence_before_thread_sync() { model::fence_before_thread_sync(); }
inline void tcgen05_fence_after_thread_sync() { model::fence_after_thread_sync(); }
inline void tcgen05_wait_ld() { model::wait_for_column_loads(); }
inline void tcgen05_wait_st() { model::wait_for_column_stores(); }

/// The model stores values where the program says, whatever the compiler has in registers.
template <class T, int kCount>
void tensor_memory_fence_operand(T (&)[kCount]) {}

inline void tcgen05_ld_32x32b_x8(float (&r)[8], std::uint32_t address) {
  model::load_columns({.instruction = "tcgen05.ld.32x32b.x8",
                       .address = address,
                       .registers = reinterpret_cast<std::byte*>(r),
                       .count = 8});
}

inline void tcgen05_ld_32x32b_x16(float (&r)[16], std::uint32_t address) {
  model::load_columns({.instruction = "tcgen05.ld.32x32b.x16",
                       .address = address,
                       .registers = reinterpret_cast<std::byte*>(r),
                       .count = 16});
}

inline void tcgen05_ld_32x32b_x32(float (&r)[32], std::uint32_t address) {
  model::load_columns({.instruction = "tcgen05.ld.32x32b.x32",
                       .address = address,
                       .registers = reinterpret_cast<std::byte*>(r),
                       .count = 32});
}

inline void tcgen05_ld_32x32b_x64_pack_16b(std::uint32_t (&r)[64], std::uint32_t address) {
  model::load_columns({.instruction = "tcgen05.ld.32x32b.x64.pack::16b",
                       .address = address,
                       .registers = reinterpret_cast<std::byte*>(r),
                       .count = 64,
                       .packs = true});
}

/// Registers are read alone: the model takes loads and stores by the same description.
inline void store_columns(const char* instruction, std::uint32_t address, const std::uint32_t* r,
                          int count) {
  model::store_columns({.instruction = instruction,
                        .address = address,
                        .registers = reinterpret_cast<std::byte*>(const_cast<std::uint32_t*>(r)),
                        .count = count});
}

inline void tcgen05_st_32x32b_x16(std::uint32_t address, const std::uint32_t (&r)[16]) {
  store_columns("tcgen05.st.32x32b.x16", address, r, 16);
}

inline void tcgen05_st_32x32b_x32(std::uint32_t address, const std::uint32_t (&r)[32]) {
  store_columns("tcgen05.st.32x32b.x32", address, r, 32);
}

}  // namespace openvc::cuda::ptx
