// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "machine/engines.hpp"
#include "machine/machine.hpp"
#include "machine/tensor_order.hpp"

namespace openvc::model {

inline constexpr unsigned kTensorLanes = 128;
inline constexpr unsigned kTensorColumns = 512;

/// Columns of tensor memory, of some of its quarters of 32 lanes.
struct ColumnRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  unsigned first_quarter = 0;
  unsigned quarters = 4;
};

/// Tensor memory of a block: 128 lanes of 512 columns of 32 bits.
class TensorMemory {
 public:
  TensorMemory(unsigned rank, unsigned warps);

  /// Returns the first column when so many are free.
  std::uint32_t allocate(std::uint32_t columns);
  void free(std::uint32_t address, std::uint32_t columns);
  void relinquish() { relinquished_ = true; }

  void load(const Operands& lanes);
  void store(const Operands& lanes);
  void wait_for_loads();

  [[nodiscard]] TensorOrder& order() { return order_; }
  [[nodiscard]] std::uint32_t& at(std::size_t lane, std::size_t column) {
    return values_[lane * kTensorColumns + column];
  }
  enum class Use {
    read,          // whatever is there
    read_written,  // what somebody has written
    write,
    write_written,  // adds to what somebody has written
  };
  /// Notes a deed. Throws if it touches columns that are not allocated, or nobody has written, or
  /// if it is not ordered behind others.
  void use(const ColumnRange& range, const TensorDeed& deed, Use use);
  /// Throws if a product has left sums of another type in columns that are read as binary16, or
  /// that a product adds to.
  void expect_type(const ColumnRange& range, const TensorDeed& deed, bool binary16);

  /// Throw if the thread that runs, or the block, may not end like this.
  void end_of_thread() const;
  void end_of_block() const;

 private:
  /// What was done with a column of a quarter last.
  struct Cell {
    TensorDeed writer;
    std::vector<TensorDeed> readers;
  };
  /// Columns, and which warp has got them when.
  struct Allocation {
    std::uint32_t columns;
    Party party;
    std::uint64_t deed;
  };
  /// A load whose registers have no values yet.
  struct PendingLoad {
    const char* instruction;
    std::array<std::byte*, kWarpLanes> registers;
    std::vector<std::uint32_t> values;  // of all lanes
  };

  [[nodiscard]] ColumnRange range_of(const Operands& lanes, TensorDeed::Kind kind) const;
  void expect_allocated(const ColumnRange& range, const char* instruction) const;
  [[nodiscard]] Cell& cell(unsigned quarter, std::uint32_t column) {
    return cells_[std::size_t{quarter} * kTensorColumns + column];
  }

  unsigned rank_;
  TensorOrder order_;
  std::vector<std::uint32_t> values_;
  std::vector<Cell> cells_;
  std::map<std::uint32_t, Allocation> allocations_;  // by the first column
  bool relinquished_ = false;
  std::vector<unsigned> waiting_;                  // threads, for columns
  std::vector<std::vector<PendingLoad>> pending_;  // of each warp
};

/// Of the block that runs.
TensorMemory& tensor_memory();

}  // namespace openvc::model
