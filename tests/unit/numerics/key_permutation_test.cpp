// SPDX-License-Identifier: BSD-3-Clause
#include "numerics/key_permutation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace openvc::numerics {
namespace {

constexpr int kKeys = 128;  // one tile

// Register fragments of wgmma, from the tables of the PTX manual. Element i of a thread's fragment:

/// Accumulator of m64nNk: column and row within the 16 rows of the thread's warp.
int accumulator_column(int lane, int i) { return 8 * (i / 4) + 2 * (lane % 4) + i % 2; }
int accumulator_row(int lane, int i) { return lane / 4 + 8 * (i / 2 % 2); }

/// A operand of m64nNk32 with 8-bit elements, in k-step `step`: 16 bytes of a thread.
int operand_k(int lane, int step, int i) {
  return 32 * step + 16 * (i / 8) + 4 * (lane % 4) + i % 4;
}
int operand_row(int lane, int i) { return lane / 4 + 8 * (i / 4 % 2); }

TEST(KeyPermutation, IsABijectionWithinGroupsOfSixteen) {
  std::vector<bool> taken(kKeys, false);
  for (int key = 0; key < kKeys; ++key) {
    const int slot = slot_of_key(key);
    ASSERT_GE(slot, 0);
    ASSERT_LT(slot, kKeys);
    EXPECT_EQ(slot / kKeyGroup, key / kKeyGroup) << key;
    EXPECT_FALSE(taken[static_cast<std::size_t>(slot)]) << key;
    taken[static_cast<std::size_t>(slot)] = true;
    EXPECT_EQ(key_of_slot(slot), key);
  }
}

TEST(KeyPermutation, ProbabilitiesStayInTheThreadThatComputedThem) {
  for (int lane = 0; lane < 32; ++lane) {
    for (int step = 0; step < kKeys / 32; ++step) {
      for (int i = 0; i < 16; ++i) {
        const int key = key_of_slot(operand_k(lane, step, i));
        bool found = false;
        for (int s = 0; s < kKeys / 2 && !found; ++s) {
          found = accumulator_column(lane, s) == key &&
                  accumulator_row(lane, s) == operand_row(lane, i);
        }
        EXPECT_TRUE(found) << "lane " << lane << " does not own key " << key;
      }
    }
  }
}

TEST(KeyPermutation, PairsOfScoresBecomePairsOfBytes) {
  // Bytes come two at a time from one accumulator register, in its order: packing four bytes takes
  // one byte permutation of two registers.
  for (int lane = 0; lane < 4; ++lane) {
    for (int slot = 0; slot < kKeys; slot += 4) {
      const int owner = slot / 4 % 4;
      if (owner != lane) continue;
      const int keys[] = {key_of_slot(slot), key_of_slot(slot + 1), key_of_slot(slot + 2),
                          key_of_slot(slot + 3)};
      const int group = slot / kKeyGroup;
      EXPECT_EQ(keys[0], accumulator_column(lane, 8 * group));
      EXPECT_EQ(keys[1], accumulator_column(lane, 8 * group + 1));
      EXPECT_EQ(keys[2], accumulator_column(lane, 8 * group + 4));
      EXPECT_EQ(keys[3], accumulator_column(lane, 8 * group + 5));
    }
  }
}

}  // namespace
}  // namespace openvc::numerics
