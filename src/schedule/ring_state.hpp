// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "numerics/bits.hpp"

namespace openvc::schedule {

/// Position in a ring of stages and the parity of the barrier phase that belongs to it.
template <int kStages>
struct RingState {
  std::uint32_t stage = 0;
  std::uint32_t parity = 0;

  OPENVC_HD constexpr void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1u;
    }
  }
};

}  // namespace openvc::schedule
