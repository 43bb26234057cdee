// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "numerics/bits.hpp"
#include "numerics/contract.hpp"

// Order of the keys inside a group of 16 in packed V.
//
// A tensor-core accumulator gives the thread t (of four) the columns 8j + 2t and 8j + 2t + 1 of a
// row; the A operand of the next product wants four consecutive bytes at 4t. Storing the keys of V
// in the order below makes the probabilities that a thread computed exactly the bytes that it has
// to supply: no shuffle in the main loop.
//
//   slot  0  1  2  3 | 4  5  6  7  | 8  9 10 11 | 12 13 14 15
//   key   0  1  8  9 | 2  3 10 11  | 4  5 12 13 |  6  7 14 15
namespace openvc::numerics {

inline constexpr int kKeyGroup = kContract.key_group;

/// Position in packed V of the key at position `key` of its sequence.
OPENVC_HD constexpr int slot_of_key(int key) {
  const int k = key % kKeyGroup;
  return key - k + 4 * ((k % 8) / 2) + (k % 2) + 2 * (k / 8);
}

/// Inverse of slot_of_key.
OPENVC_HD constexpr int key_of_slot(int slot) {
  const int s = slot % kKeyGroup;
  return slot - s + 2 * (s / 4) + (s % 2) + 8 * ((s % 4) / 2);
}

static_assert([] {
  for (int key = 0; key < 4 * kKeyGroup; ++key) {
    if (key_of_slot(slot_of_key(key)) != key) return false;
  }
  return true;
}());

}  // namespace openvc::numerics
