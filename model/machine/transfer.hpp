// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "machine/engines.hpp"
#include "machine/mbarrier.hpp"

namespace openvc::model {

/// A copy to the shared memory of one block.
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
};

/// Copies that have been issued. They are done in any order.
class TransferQueue {
 public:
  [[nodiscard]] bool empty() const { return in_flight_.empty(); }
  [[nodiscard]] std::size_t size() const { return in_flight_.size(); }

  void issue(const Transfer& transfer);
  void complete(std::size_t index);
  /// Throws if a copy to a block is in flight, which has ended.
  void expect_none(unsigned rank) const;

 private:
  static void expect_no_readers(const Transfer& transfer);

  std::deque<Transfer> in_flight_;
  std::uint32_t tiles_ = 0;  // that have been copied
};

}  // namespace openvc::model
