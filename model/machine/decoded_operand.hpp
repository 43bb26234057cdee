// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace openvc::model {

/// Decoded B of a product. Warps share operands: the last ones are kept.
template <class Decoded>
const Decoded& decoded(std::span<const std::byte> bytes) {
  struct Entry {
    std::vector<std::byte> bytes;
    Decoded decoded;
  };
  constexpr std::size_t kEntries = 8;
  static thread_local std::vector<Entry> entries(kEntries);
  static thread_local std::size_t next = 0;
  for (const Entry& entry : entries) {
    if (entry.bytes.size() == bytes.size() &&
        std::memcmp(entry.bytes.data(), bytes.data(), bytes.size()) == 0) {
      return entry.decoded;
    }
  }
  Entry& entry = entries[next++ % kEntries];
  entry.bytes.assign(bytes.begin(), bytes.end());
  entry.decoded = Decoded(bytes);
  return entry.decoded;
}

}  // namespace openvc::model
