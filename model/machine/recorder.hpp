// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Who wants to know what the warps of a launch do, for example to give it a time
// (timing/recorder.hpp).
namespace openvc::model {

/// Classes of the instructions that the language knows. Plain C++ on registers it does not see.
enum class InstructionClass : std::uint8_t {
  fma,       // binary32
  fma_pair,  // two of them
  half,      // packed binary16 fma
  half_add,  // packed binary16 sums, and binary16 to binary32
  maximum,   // packed
  alu,       // byte permutations
  convert,
  special,   // 2^x
  exchange,  // shuffles
  vote,
};
inline constexpr std::size_t kInstructionClasses = 10;
using InstructionCounts = std::array<std::int64_t, kInstructionClasses>;

/// A barrier of a block of the cluster.
struct RecordedBarrier {
  unsigned rank;
  std::uint32_t offset;
  std::string name;
  unsigned arrivals;
};

/// Sees the first cluster of a launch. Warps are counted through the blocks of the cluster.
class Recorder {
 public:
  virtual ~Recorder() = default;

  virtual void begin_warp(unsigned warp, unsigned rank, unsigned warp_of_block,
                          const std::string& role) = 0;
  /// Where instructions of the warp are counted: those of its first lane.
  virtual InstructionCounts& counts(unsigned warp) = 0;
  virtual void wait(unsigned warp, const RecordedBarrier& barrier, std::uint64_t phases) = 0;
  virtual void arrive(unsigned warp, const RecordedBarrier& barrier, std::uint32_t bytes) = 0;
  /// A copy, which every receiver counts on its own barrier.
  virtual void copy(unsigned warp, const char* instruction, std::uint32_t bytes,
                    const std::vector<RecordedBarrier>& receivers) = 0;
  virtual void product(unsigned warp, const char* instruction) = 0;
  virtual void commit(unsigned warp) = 0;
  virtual void wait_for_products(unsigned warp, int pending_groups) = 0;

  // ---- tcgen05 ----
  virtual void block_product(unsigned warp, std::uint32_t columns) = 0;
  virtual void commit_block_products(unsigned warp,
                                     const std::vector<RecordedBarrier>& receivers) = 0;
  /// A load or store of tensor memory, and the wait for either.
  virtual void column_access(unsigned warp, const char* instruction) = 0;
  virtual void wait_for_column_accesses(unsigned warp) = 0;
};

/// Holds for launches until the next call; null ends it.
void set_recorder(Recorder* recorder);
/// Of the thread that runs; null if nobody records it.
Recorder* recorder();

/// Where the thread that runs counts its instructions; null if nobody does.
extern InstructionCounts* instruction_counts;
inline void count(InstructionClass kind) {
  if (instruction_counts != nullptr) ++(*instruction_counts)[static_cast<std::size_t>(kind)];
}

}  // namespace openvc::model
