// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "machine/clock.hpp"
#include "machine/engines.hpp"
#include "machine/mbarrier.hpp"

namespace openvc::model {

/// A copy of a thread to shared memory: cp.async.
struct Copy {
  void* destination;
  const void* source;  // null: zeros
  std::size_t bytes;
  bool is_done = false;  // at once: nobody may know

  void perform() const;
};

/// A copy to the shared memory of one block, or an arrival behind copies of a thread.
struct Transfer {
  const char* instruction;
  unsigned issuer;       // thread of the cluster
  unsigned rank;         // of the block that receives it
  std::uint32_t offset;  // there
  std::uint32_t bytes;
  BarrierPlace barrier;
  const std::byte* source = nullptr;  // of contiguous bytes; null: a tile
  TensorMap map{};
  int coordinates[3] = {};
  // An arrival instead, behind copies of a thread, which are done together.
  bool is_arrival = false;
  std::vector<Copy> copies{};
  Clock before{};  // what has happened before it
};

/// Takes shared memory for a copy that the thread that runs begins; throws if somebody may still
/// use it.
void claim(const char* instruction, unsigned rank, std::uint32_t offset, std::uint32_t bytes);
/// Copies of the thread that runs are done, and it knows.
void finish_copies(const std::vector<Copy>& copies);

/// Copies that have been issued. They are done in any order.
class TransferQueue {
 public:
  [[nodiscard]] bool empty() const { return in_flight_.empty(); }
  [[nodiscard]] std::size_t size() const { return in_flight_.size(); }

  void issue(const Transfer& transfer);
  void issue_arrival(const Transfer& transfer);
  void complete(std::size_t index);
  /// Throws if a copy to a block is in flight, which has ended.
  void expect_none(unsigned rank) const;

 private:
  void append(const Transfer& transfer);

  std::deque<Transfer> in_flight_;
  std::uint32_t tiles_ = 0;  // that have been copied
};

}  // namespace openvc::model
