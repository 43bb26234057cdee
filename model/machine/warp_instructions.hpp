// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "machine/machine.hpp"

// What a warp executes together on its tensor core: execute_together() takes these functions.
namespace openvc::model {

/// mma m16n8k32 of E4M3, of one lane: D += A B. Sums are rounded once, from binary64: tensor cores
/// add in an order of their own, which tests may not depend on.
struct WarpProduct {
  std::byte* d;            // four of binary32, or four of binary16
  const std::uint32_t* a;  // four registers
  std::uint32_t b[2];
};
void multiply_e4m3_f32(const Operands& lanes);
void multiply_e4m3_f16(const Operands& lanes);

/// ldmatrix.x4, of one lane.
struct MatrixLoad {
  std::uint32_t* d;       // four registers
  std::uint32_t address;  // of a row
};
void load_matrices(const Operands& lanes);

}  // namespace openvc::model
