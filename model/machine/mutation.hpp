// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

// Faults that tests plant: the machine does for a kernel what it would ask for if a line of it were
// wrong.
namespace openvc::model {

struct Mutation {
  enum class Kind {
    none,
    skip,    // the instruction is left out
    repeat,  // is executed twice
    change,  // an operand is off by `amount`: bytes, a parity, groups, a descriptor, arrivals
  };
  Kind kind = Kind::none;
  std::string instruction;  // and, of those with several operands to change, which: "tcgen05.mma D"
  std::string barrier;      // start of its name; empty: any
  std::int64_t amount = 0;
  int warp = -1;  // of the block; -1: any
  int lane = -1;  // -1: any
  int first = 1;  // of those that a thread executes
  int last = 1 << 30;
};

/// Holds for launches until the next call; {} ends it.
void set_mutation(const Mutation& mutation);

/// Whether the instruction that the thread executes is to be changed like this; counts.
bool is_mutated(Mutation::Kind kind, const char* instruction);
bool is_mutated(Mutation::Kind kind, const char* instruction, unsigned barrier_rank,
                std::uint32_t barrier_offset);
/// By how much an operand is off: 0 without a mutation.
std::int64_t mutation_amount(const char* instruction);
std::int64_t mutation_amount(const char* instruction, unsigned barrier_rank,
                             std::uint32_t barrier_offset);

}  // namespace openvc::model
