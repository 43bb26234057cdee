// SPDX-License-Identifier: BSD-3-Clause
#include <cstddef>
#include <cstdint>

#include "machine/access.hpp"

// The functions that a compiler calls before every load and store with -fsanitize=thread, which
// kernels are compiled with: here they tell the model. ThreadSanitizer itself is not linked. No
// exception may pass through them: the compiler does not expect one.

namespace {

/// Most loads and stores are to the stack of the thread that runs.
constexpr std::uintptr_t kStackReach = 16 * 1024;

inline void observe(const openvc::model::Access& access) {
  using openvc::model::window;
  if (window.end == 0) return;
  const auto address = reinterpret_cast<std::uintptr_t>(access.address);
  if (address - window.begin < window.end - window.begin) return observe_shared(access);
  const auto stack = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  if (address - stack < kStackReach) return;
  observe_global(access);
}

inline void load(const void* address, std::size_t bytes) { observe({address, bytes, false}); }
inline void store(const void* address, std::size_t bytes) { observe({address, bytes, true}); }

}  // namespace

// NOLINTBEGIN: names are the compiler's.
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

void __tsan_read1(void* p) { load(p, 1); }
void __tsan_read2(void* p) { load(p, 2); }
void __tsan_read4(void* p) { load(p, 4); }
void __tsan_read8(void* p) { load(p, 8); }
void __tsan_read16(void* p) { load(p, 16); }
void __tsan_write1(void* p) { store(p, 1); }
void __tsan_write2(void* p) { store(p, 2); }
void __tsan_write4(void* p) { store(p, 4); }
void __tsan_write8(void* p) { store(p, 8); }
void __tsan_write16(void* p) { store(p, 16); }
void __tsan_unaligned_read2(void* p) { load(p, 2); }
void __tsan_unaligned_read4(void* p) { load(p, 4); }
void __tsan_unaligned_read8(void* p) { load(p, 8); }
void __tsan_unaligned_read16(void* p) { load(p, 16); }
void __tsan_unaligned_write2(void* p) { store(p, 2); }
void __tsan_unaligned_write4(void* p) { store(p, 4); }
void __tsan_unaligned_write8(void* p) { store(p, 8); }
void __tsan_unaligned_write16(void* p) { store(p, 16); }
void __tsan_read_range(void* p, std::size_t bytes) { load(p, bytes); }
void __tsan_write_range(void* p, std::size_t bytes) { store(p, bytes); }

// Guards of static objects and counts of references. The model has one thread.
char __tsan_atomic8_load(const volatile char* p, int) { return *p; }
int __tsan_atomic32_fetch_add(volatile int* p, int x, int) {
  return __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_fetch_sub(volatile int* p, int x, int) {
  return __atomic_fetch_sub(p, x, __ATOMIC_SEQ_CST);
}

}  // extern "C"
// NOLINTEND
