// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace openvc::cuda::ptx {

inline std::uint32_t max_u16x2(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t low = (a & 0xFFFFu) > (b & 0xFFFFu) ? a : b;
  const std::uint32_t high = (a >> 16) > (b >> 16) ? a : b;
  return (low & 0xFFFFu) | (high & 0xFFFF'0000u);
}

}  // namespace openvc::cuda::ptx
