// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace openvc::model {

/// Where a byte of a swizzled tile lies: inside a span of 32, 64 or 128 bytes, chunks of 16 change
/// places by the address bits from 7 on.
inline std::uint32_t swizzled(std::uint32_t address, std::uint32_t span) {
  constexpr std::uint32_t kChunk = 16;
  constexpr int kDistance = 3;  // from the bits that decide to those that change
  return address ^ ((address >> kDistance) & (span - kChunk));
}

}  // namespace openvc::model
