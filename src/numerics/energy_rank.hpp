// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"

namespace openvc::numerics {

/// How many of the channels [first, first + count) come before channel c when all are sorted by
/// descending energy, ties by ascending index. `energies` starts at channel `first`.
OPENVC_HD constexpr int count_before(const float* energies, int first, int count, int c,
                                     float energy) {
  int before = 0;
  for (int i = 0; i < count; ++i) {
    if (energies[i] > energy || (energies[i] == energy && first + i < c)) ++before;
  }
  return before;
}

/// Position of channel c in that order.
template <int kDim = kHeadDim>
OPENVC_HD constexpr int energy_rank(const float* energies, int c) {
  return count_before(energies, 0, kDim, c, energies[c]);
}

}  // namespace openvc::numerics
