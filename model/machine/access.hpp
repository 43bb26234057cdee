// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "machine/clock.hpp"

// Loads and stores of threads, which the compiler announces (instrumentation.cpp).
namespace openvc::model {

struct Access {
  const void* address;
  std::size_t bytes;
  bool stores;

  [[nodiscard]] const char* verb() const { return stores ? "stores to " : "loads from "; }
};

/// Shared memory of the block that runs; empty outside of a launch.
struct Window {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};
extern Window window;

/// Checks an access of the thread that runs: to shared memory, or to any other.
void observe_shared(const Access& access);
void observe_global(const Access& access);

/// Memory round a buffer, which nobody may touch: [guard][bytes][guard].
void guard_memory(const void* buffer, std::size_t bytes, std::size_t guard);
void release_memory(const void* buffer);
/// Empty, or how an access of global memory touches a guard.
std::string guard_violation(const Access& access);

/// The last accesses of words of shared memory by warps.
class AccessLog {
 public:
  /// A deed of a warp, counted by its clock.
  struct Deed {
    std::uint32_t warp = 0;
    std::uint64_t count = 0;  // 0: none
  };
  struct Word {
    Deed store;
    std::array<Deed, 2> loads;  // of the last two warps
  };
  static constexpr std::uint32_t kWordBytes = 4;

  [[nodiscard]] Word& word(std::uint32_t offset);
  /// A deed in a range that has not happened before a clock.
  [[nodiscard]] std::optional<Deed> find_unordered(std::uint32_t offset, std::uint32_t bytes,
                                                   const Clock& clock) const;

 private:
  static constexpr std::uint32_t kPageWords = 256;
  using Page = std::array<Word, kPageWords>;
  std::vector<std::unique_ptr<Page>> pages_;
};

}  // namespace openvc::model
