// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "machine/recorder.hpp"

namespace openvc::cuda::ptx {

template <int kSelector>
std::uint32_t prmt(std::uint32_t a, std::uint32_t b) {
  model::count(model::InstructionClass::alu);
  constexpr int kDigits = 0x7777;  // 0 to 7: whole bytes, no copies of a sign
  static_assert((kSelector & ~kDigits) == 0);
  const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
  std::uint32_t d = 0;
  for (int i = 0; i < 4; ++i) {
    const int digit = kSelector >> (4 * i) & 7;
    d |= static_cast<std::uint32_t>(bytes >> (8 * digit) & 0xFFu) << (8 * i);
  }
  return d;
}

}  // namespace openvc::cuda::ptx
