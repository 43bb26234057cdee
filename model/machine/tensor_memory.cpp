// SPDX-License-Identifier: BSD-3-Clause
#include "machine/tensor_memory.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "machine/cluster.hpp"

namespace openvc::model {
namespace {

using Kind = TensorDeed::Kind;

constexpr std::uint32_t kLeastColumns = 32;  // of an allocation, and what it starts at
constexpr unsigned kQuarters = 4;
constexpr std::uint32_t kPoisonColumn = 0xFFFF'FFFF;
constexpr int kLaneShift = 16;  // of an address
constexpr std::uint32_t kColumnMask = (1u << kLaneShift) - 1;
constexpr std::size_t kRegisterBytes = sizeof(std::uint32_t);

const ColumnAccess& access_of(const Operands& lanes, std::size_t lane) {
  return *static_cast<const ColumnAccess*>(lanes[lane]);
}

std::string columns_text(std::uint32_t first, std::uint32_t count) {
  return "columns " + std::to_string(first) + " to " + std::to_string(first + count - 1);
}

std::string lanes_text(unsigned quarter) {
  return "lanes " + std::to_string(quarter * kWarpLanes) + " to " +
         std::to_string((quarter + 1) * kWarpLanes - 1);
}

bool is_same(const TensorDeed& a, const TensorDeed& b) {
  return a.kind == b.kind && a.warp == b.warp && a.count == b.count;
}

}  // namespace

TensorMemory::TensorMemory(unsigned rank, unsigned warps)
    : rank_(rank),
      order_(rank, warps),
      values_(std::size_t{kTensorLanes} * kTensorColumns, kPoisonColumn),
      cells_(std::size_t{kQuarters} * kTensorColumns),
      pending_(warps) {}

TensorMemory& tensor_memory() {
  auto& memory = cluster().block().tensor_memory;
  if (memory == nullptr) {
    memory = std::make_unique<TensorMemory>(cluster().rank(), cluster().warps_of_block());
  }
  return *memory;
}

// ---- allocation ---------------------------------------------------------------------------------

std::uint32_t TensorMemory::allocate(std::uint32_t columns) {
  const std::string name = "tcgen05.alloc: ";
  if (columns < kLeastColumns || columns > kTensorColumns || !std::has_single_bit(columns)) {
    fail(name + std::to_string(columns) + " columns; expected a power of two from 32 to 512");
  }
  if (relinquished_) fail(name + "after tcgen05.relinquish_alloc_permit");
  const auto is_free = [&](std::uint32_t first) {
    return std::ranges::none_of(allocations_, [&](const auto& taken) {
      return taken.first < first + columns && first < taken.first + taken.second.columns;
    });
  };
  while (true) {
    for (std::uint32_t first = 0; first + columns <= kTensorColumns; first += kLeastColumns) {
      if (!is_free(first)) continue;
      allocations_[first] = {columns, cluster().warp_party(), cluster().tick()};
      for (std::uint32_t column = first; column < first + columns; ++column) {
        for (std::size_t i = 0; i < kTensorLanes; ++i) at(i, column) = kPoisonColumn;
        for (unsigned quarter = 0; quarter < kQuarters; ++quarter) cell(quarter, column) = {};
      }
      return first;
    }
    waiting_.push_back(cluster().running());
    cluster().suspend(State::for_columns);
  }
}

void TensorMemory::free(std::uint32_t address, std::uint32_t columns) {
  const std::string name = "tcgen05.dealloc: ";
  const auto found = allocations_.find(address);
  if (found == allocations_.end() || found->second.columns != columns) {
    fail(name + std::to_string(columns) + " columns at " + hexadecimal(address) +
         " are none that tcgen05.alloc gave");
  }
  for (std::uint32_t column = address; column < address + columns; ++column) {
    for (unsigned quarter = 0; quarter < kQuarters; ++quarter) {
      const auto expect_complete = [&](const TensorDeed& deed) {
        const std::string why = order_.why_incomplete(deed);
        if (why.empty()) return;
        fail(name + "column " + std::to_string(column) + ", " + lanes_text(quarter) + ", which " +
             deed.instruction + " of " +
             cluster().describe_warp(rank_ * cluster().grid().threads + deed.warp * kWarpLanes) +
             " has used: " + why);
      };
      const Cell& used = cell(quarter, column);
      expect_complete(used.writer);
      for (const TensorDeed& reader : used.readers) expect_complete(reader);
    }
  }
  allocations_.erase(found);
  for (const unsigned thread : std::exchange(waiting_, {})) cluster().wake(thread);
}

void TensorMemory::expect_allocated(const ColumnRange& range, const char* instruction) const {
  const auto text = [&] {
    return std::string(instruction) + ": " + columns_text(range.first, range.count) +
           " of tensor memory";
  };
  for (const auto& [first, allocation] : allocations_) {
    if (range.first < first || range.first + range.count > first + allocation.columns) continue;
    if (cluster().clock().at(allocation.party) >= allocation.deed) return;
    fail(text() + ": nothing orders their allocation by " +
         cluster().describe_warp_of_party(allocation.party) + " before this");
  }
  fail(text() + " are not allocated");
}

// ---- who uses what ------------------------------------------------------------------------------

void TensorMemory::use(const ColumnRange& range, const TensorDeed& deed, Use use) {
  expect_allocated(range, deed.instruction);
  const bool writes = use == Use::write || use == Use::write_written;
  const bool needs = use == Use::read_written || use == Use::write_written;
  TensorDeed ordered;  // the last one that was found to be: neighbours mostly have the same
  for (std::uint32_t column = range.first; column < range.first + range.count; ++column) {
    for (unsigned i = 0; i < range.quarters; ++i) {
      const unsigned quarter = range.first_quarter + i;
      Cell& used = cell(quarter, column);
      const auto place = [&] {
        return std::string(deed.instruction) + ": " + (writes ? "writes to" : "reads") +
               " column " + std::to_string(column) + " of tensor memory, " + lanes_text(quarter);
      };
      const auto expect_ordered = [&](const TensorDeed& earlier, const char* verb) {
        if (earlier.kind == Kind::none || is_same(earlier, ordered) || is_same(earlier, deed)) {
          return;
        }
        const std::string why = order_.why_unordered(earlier, deed);
        if (!why.empty()) {
          fail(place() + ", which " + earlier.instruction + " of " +
               cluster().describe_warp(rank_ * cluster().grid().threads +
                                       earlier.warp * kWarpLanes) +
               " " + verb + ": " + why);
        }
        ordered = earlier;
      };
      if (needs && used.writer.kind == Kind::none) fail(place() + ", which nobody has written");
      expect_ordered(used.writer, "writes");
      if (writes) {
        for (const TensorDeed& reader : used.readers) expect_ordered(reader, "reads");
        used.writer = deed;
        used.readers.clear();
        continue;
      }
      const auto same = std::ranges::find_if(used.readers, [&](const TensorDeed& reader) {
        return reader.kind == deed.kind && reader.warp == deed.warp;
      });
      if (same == used.readers.end()) {
        used.readers.push_back(deed);
      } else {
        *same = deed;
      }
    }
  }
}

void TensorMemory::expect_type(const ColumnRange& range, const TensorDeed& deed, bool binary16) {
  for (unsigned i = 0; i < range.quarters; ++i) {
    const TensorDeed& writer = cell(range.first_quarter + i, range.first).writer;
    if (writer.kind != Kind::product || writer.binary16 == binary16) continue;
    const auto type = [](bool is_binary16) { return is_binary16 ? "binary16" : "binary32"; };
    fail(std::string(deed.instruction) + ": takes column " + std::to_string(range.first) +
         " of tensor memory for a sum of " + type(binary16) + "; " + writer.instruction + " of " +
         cluster().describe_warp(rank_ * cluster().grid().threads + writer.warp * kWarpLanes) +
         " has left one of " + type(writer.binary16));
  }
}

// ---- loads and stores ---------------------------------------------------------------------------

ColumnRange TensorMemory::range_of(const Operands& lanes, Kind kind) const {
  const ColumnAccess& access = access_of(lanes, 0);
  const std::string name = access.instruction;
  for (std::size_t lane = 1; lane < kWarpLanes; ++lane) {
    if (access_of(lanes, lane).address != access.address) {
      fail(name + ": lanes of the warp have unlike addresses");
    }
  }
  const std::uint32_t quarter = cluster().warp() % kQuarters;
  const std::uint32_t first_lane = access.address >> kLaneShift;
  if (first_lane != quarter * kWarpLanes) {
    fail(name + ": the address " + hexadecimal(access.address) + " starts at lane " +
         std::to_string(first_lane) + "; warp " + std::to_string(cluster().warp()) +
         " of the block reaches the " + lanes_text(quarter));
  }
  const int each = kind == Kind::load && access.packs ? 2 : 1;
  return {.first = access.address & kColumnMask,
          .count = static_cast<std::uint32_t>(access.count * each),
          .first_quarter = quarter,
          .quarters = 1};
}

void TensorMemory::load(const Operands& lanes) {
  const ColumnAccess& access = access_of(lanes, 0);
  const ColumnRange range = range_of(lanes, Kind::load);
  const TensorDeed deed = order_.begin(Kind::load, access.instruction);
  use(range, deed, Use::read);
  if (access.packs) expect_type(range, deed, true);
  const auto count = static_cast<std::size_t>(access.count);
  PendingLoad pending{.instruction = access.instruction, .registers = {}, .values = {}};
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    std::byte* registers = access_of(lanes, lane).registers;
    pending.registers[lane] = registers;
    std::memset(registers, kPoison, count * kRegisterBytes);
    const std::uint32_t* row = &at(range.first_quarter * kWarpLanes + lane, range.first);
    for (std::size_t i = 0; i < count; ++i) {
      constexpr std::uint32_t kHalf = 0xFFFF;
      pending.values.push_back(access.packs ? (row[2 * i] & kHalf) | row[2 * i + 1] << 16 : row[i]);
    }
  }
  pending_[cluster().warp()].push_back(std::move(pending));
}

void TensorMemory::store(const Operands& lanes) {
  const ColumnAccess& access = access_of(lanes, 0);
  const ColumnRange range = range_of(lanes, Kind::store);
  use(range, order_.begin(Kind::store, access.instruction), Use::write);
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    std::memcpy(&at(range.first_quarter * kWarpLanes + lane, range.first),
                access_of(lanes, lane).registers, range.count * kRegisterBytes);
  }
}

void TensorMemory::wait_for_loads() {
  for (const PendingLoad& load : std::exchange(pending_[cluster().warp()], {})) {
    const std::size_t count = load.values.size() / kWarpLanes;
    for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
      std::byte* registers = load.registers[lane];
      if (!std::all_of(registers, registers + count * kRegisterBytes,
                       [](std::byte byte) { return byte == std::byte{kPoison}; })) {
        fail(std::string(load.instruction) +
             ": its registers were written before tcgen05.wait::ld");
      }
      std::memcpy(registers, load.values.data() + lane * count, count * kRegisterBytes);
    }
  }
  order_.complete(Kind::load);
}

// ---- the end ------------------------------------------------------------------------------------

void TensorMemory::end_of_thread() const {
  if (!order_.is_complete(Kind::load)) fail("ends without tcgen05.wait::ld behind its loads");
  if (!order_.is_complete(Kind::store)) fail("ends without tcgen05.wait::st behind its stores");
}

void TensorMemory::end_of_block() const {
  for (const auto& [first, allocation] : allocations_) {
    fail("the block ends with " + columns_text(first, allocation.columns) +
         " of tensor memory allocated; expected tcgen05.dealloc before that");
  }
}

}  // namespace openvc::model
