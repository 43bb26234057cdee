// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace openvc::cute_oracle {

/// Bytes, none of them a NaN of E4M3, that start at a multiple of 16.
class RandomBytes {
 public:
  RandomBytes(int count, std::uint32_t seed) : storage_(static_cast<std::size_t>(count) + 16) {
    for (std::uint8_t& byte : storage_) {
      seed = seed * 1664525u + 1013904223u;
      byte = static_cast<std::uint8_t>(seed >> 24);
      if ((byte & 0x7Fu) == 0x7Fu) --byte;
    }
  }
  [[nodiscard]] const std::uint8_t* data() const {
    return storage_.data() + (16 - reinterpret_cast<std::uintptr_t>(storage_.data()) % 16) % 16;
  }

 private:
  std::vector<std::uint8_t> storage_;
};

}  // namespace openvc::cute_oracle
