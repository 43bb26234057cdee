// SPDX-License-Identifier: BSD-3-Clause
#include "machine/transfer.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "machine/access.hpp"
#include "machine/cluster.hpp"
#include "machine/mutation.hpp"
#include "machine/recorder.hpp"
#include "machine/swizzle.hpp"

namespace openvc::model {
namespace {

constexpr std::uint32_t kTileAlignment = 128;

/// Calls visit(offset in shared memory, row, column) for every chunk of a copy, in order.
template <class Visit>
void for_each_chunk(const Transfer& transfer, const Visit& visit) {
  const std::uint32_t row_chunks =
      (transfer.source != nullptr ? transfer.bytes : transfer.map.box[0]) / kChunkBytes;
  for (std::uint32_t i = 0; i < transfer.bytes / kChunkBytes; ++i) {
    const std::uint32_t offset = transfer.offset + i * kChunkBytes;
    visit(transfer.source != nullptr ? offset : swizzled(offset, transfer.map.swizzle_bytes),
          i / row_chunks, i % row_chunks);
  }
}

/// A chunk of a tile: zeros where the tensor has no elements.
std::array<std::byte, kChunkBytes> tile_chunk(const Transfer& transfer, std::uint32_t row,
                                              std::uint32_t column) {
  const TensorMap& map = transfer.map;
  const std::int64_t at[3] = {transfer.coordinates[0] + std::int64_t{column} * kChunkBytes,
                              transfer.coordinates[1] + std::int64_t{row % map.box[1]},
                              transfer.coordinates[2] + std::int64_t{row / map.box[1]}};
  std::array<std::byte, kChunkBytes> bytes{};
  const auto is_inside = [&](int axis, std::int64_t i) {
    return i >= 0 && i < static_cast<std::int64_t>(map.shape[axis]);
  };
  if (!is_inside(1, at[1]) || !is_inside(2, at[2])) return bytes;
  const std::byte* line = map.data + at[1] * static_cast<std::int64_t>(map.strides[0]) +
                          at[2] * static_cast<std::int64_t>(map.strides[1]);
  for (std::uint32_t i = 0; i < kChunkBytes; ++i) {
    if (is_inside(0, at[0] + i)) bytes[i] = line[at[0] + i];
  }
  const std::string violation = guard_violation({line + at[0], kChunkBytes, false});
  if (!violation.empty()) fail_engine(transfer.instruction, transfer.issuer, violation);
  return bytes;
}

}  // namespace

namespace {

/// Throws if a product may still read what a copy writes.
void expect_no_readers(const char* instruction, unsigned rank, std::uint32_t offset,
                       std::uint32_t bytes) {
  SharedMemory& shared = cluster().block(rank).shared;
  constexpr std::uint32_t kPage = SharedMemory::kPageBytes;
  for (std::uint32_t page = offset / kPage * kPage; page < offset + bytes; page += kPage) {
    for (unsigned warp = 0; warp < cluster().warps_of_block(); ++warp) {
      const std::uint64_t product = shared.last_reader(page, warp);
      if (product <= cluster().clock().at(cluster().product_party(rank, warp))) continue;
      fail(std::string(instruction) + ": writes to " + hexadecimal(kWindowBase + page) +
           " of block " + std::to_string(cluster().block(rank).index) +
           ", and nothing orders a product of " +
           cluster().describe_warp(rank * cluster().grid().threads + warp * kWarpLanes) +
           " that reads there before this");
    }
  }
}

}  // namespace

void claim(const char* instruction, unsigned rank, std::uint32_t offset, std::uint32_t bytes) {
  expect_no_readers(instruction, rank, offset, bytes);
  SharedMemory& shared = cluster().block(rank).shared;
  const auto refuse = [&](std::uint32_t at, const std::string& text) {
    fail(std::string(instruction) + ": writes to " + hexadecimal(kWindowBase + at) + text);
  };
  const std::string of_block = " of block " + std::to_string(cluster().block(rank).index);
  if (const auto deed = shared.accesses().find_unordered(offset, bytes, cluster().clock());
      deed && deed->warp != cluster().warp_party()) {
    refuse(offset, " and behind, of block " + std::to_string(cluster().block(rank).index) +
                       ", and nothing orders an access of " +
                       cluster().describe_warp_of_party(deed->warp) + " before this");
  }
  for (std::uint32_t at = offset; at < offset + bytes; at += kChunkBytes) {
    Chunk& chunk = shared.chunk(at);
    if (chunk.in_flight) {
      refuse(at,
             of_block + ", as does a copy in flight of " + cluster().describe_warp(chunk.writer));
    }
    if (chunk.party != Chunk::kNobody && cluster().clock().at(chunk.party) <= chunk.phase) {
      refuse(at, of_block + ", where a copy of " + cluster().describe_warp(chunk.writer) +
                     " has written that nobody has waited for: phase " +
                     std::to_string(chunk.phase) + " of " +
                     cluster().describe_barrier(rank, chunk.barrier));
    }
    chunk.in_flight = true;
    chunk.writer = cluster().running();
    shared.store(at, nullptr, kChunkBytes);
  }
}

void TransferQueue::append(const Transfer& transfer) {
  in_flight_.push_back(transfer);
  if (cluster().schedule().engines == Engines::eager) complete(in_flight_.size() - 1);
}

void TransferQueue::issue(const Transfer& transfer) {
  check_initialised(transfer.barrier, Scope::cluster, transfer.instruction);
  claim(transfer.instruction, transfer.rank, transfer.offset, transfer.bytes);
  append(transfer);
}

void TransferQueue::issue_arrival(const Transfer& transfer) {
  check_initialised(transfer.barrier, Scope::block, transfer.instruction);
  append(transfer);
}

// ---- copies of threads --------------------------------------------------------------------------

void Copy::perform() const {
  if (is_done) return;
  if (source == nullptr) {
    std::memset(destination, 0, bytes);
  } else {
    std::memcpy(destination, source, bytes);
  }
}

namespace {

/// Calls visit(chunk) for what a copy has written in a block.
template <class Visit>
void for_each_chunk(SharedMemory& shared, const Copy& copy, const Visit& visit) {
  const std::uint32_t first = *shared.offset_of(copy.destination, copy.bytes);
  for (std::uint32_t at = first; at < first + copy.bytes; at += kChunkBytes) {
    visit(shared.chunk(at));
  }
}

void complete_copies(const Transfer& transfer) {
  Block& block = cluster().block(transfer.rank);
  const Barrier& barrier = block.barriers.at(transfer.barrier.offset);
  for (const Copy& copy : transfer.copies) {
    copy.perform();
    for_each_chunk(block.shared, copy, [&](Chunk& chunk) {
      chunk.copy = 0;
      chunk.in_flight = false;
      chunk.barrier = transfer.barrier.offset;
      chunk.party = barrier.party;
      chunk.phase = barrier.phase;
    });
  }
  arrive_by_engine(transfer.barrier,
                   {transfer.instruction, transfer.issuer, transfer.before, Party{}});
}

}  // namespace

void finish_copies(const std::vector<Copy>& copies) {
  SharedMemory& shared = cluster().block().shared;
  for (const Copy& copy : copies) {
    copy.perform();
    if (!shared.is_used_by_engines()) continue;
    for_each_chunk(shared, copy, [](Chunk& chunk) {
      chunk.in_flight = false;
      chunk.party = Chunk::kNobody;
    });
    observe_shared({copy.destination, copy.bytes, true});
  }
}

void arrive_behind_copies(std::uint32_t barrier) {
  cluster().perhaps_yield();
  const char* instruction = "cp.async.mbarrier.arrive";
  const BarrierPlace place = barrier_place(barrier, Scope::block, instruction);
  if (is_mutated(Mutation::Kind::skip, instruction, place.rank, place.offset)) return;
  Transfer transfer{.instruction = instruction,
                    .issuer = cluster().running(),
                    .rank = cluster().rank(),
                    .offset = 0,
                    .bytes = 0,
                    .barrier = place,
                    .is_arrival = true};
  transfer.copies.swap(cluster().self().open_copies);
  (void)cluster().tick();
  transfer.before = cluster().clock();
  cluster().transfers().issue_arrival(transfer);
}

// ---- tiles and contiguous bytes -----------------------------------------------------------------

void TransferQueue::complete(std::size_t index) {
  const Transfer transfer = in_flight_[index];
  in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(index));
  if (transfer.is_arrival) return complete_copies(transfer);
  SharedMemory& shared = cluster().block(transfer.rank).shared;
  const bool is_tile = transfer.source == nullptr;
  if (is_tile) ++tiles_;
  const std::byte* source = transfer.source;
  const Barrier& barrier =
      cluster().block(transfer.barrier.rank).barriers.at(transfer.barrier.offset);
  for_each_chunk(transfer, [&](std::uint32_t offset, std::uint32_t row, std::uint32_t column) {
    if (is_tile) {
      shared.store(offset, tile_chunk(transfer, row, column).data(), kChunkBytes);
    } else {
      const std::string violation = guard_violation({source, kChunkBytes, false});
      if (!violation.empty()) fail_engine(transfer.instruction, transfer.issuer, violation);
      shared.store(offset, source, kChunkBytes);
      source += kChunkBytes;
    }
    Chunk& chunk = shared.chunk(offset);
    chunk.copy = is_tile ? tiles_ : 0;
    chunk.row = static_cast<std::uint16_t>(row);
    chunk.column = static_cast<std::uint8_t>(column);
    chunk.swizzle = static_cast<std::uint8_t>(transfer.map.swizzle_bytes);
    chunk.in_flight = false;
    chunk.barrier = transfer.barrier.offset;
    chunk.party = barrier.party;
    chunk.phase = barrier.phase;
  });
  complete_bytes(transfer.barrier, transfer.bytes, transfer.instruction, transfer.issuer);
}

void TransferQueue::expect_none(unsigned rank) const {
  for (const Transfer& transfer : in_flight_) {
    if (transfer.rank != rank) continue;
    fail_engine(transfer.instruction, transfer.issuer,
                "block " + std::to_string(cluster().block(rank).index) +
                    " has ended, and the copy to its shared memory is in flight");
  }
}

void copy_tile(const TensorMap& map, const TileCopy& copy) {
  cluster().perhaps_yield();
  const std::string name = copy.instruction;
  if (is_mutated(Mutation::Kind::skip, copy.instruction)) return;
  const std::uint32_t destination =
      copy.destination + static_cast<std::uint32_t>(mutation_amount(copy.instruction));
  if (map.data == nullptr) fail(name + ": the tensor map has not been encoded");
  Transfer transfer{.instruction = copy.instruction,
                    .issuer = cluster().running(),
                    .rank = 0,
                    .offset = destination - kWindowBase,
                    .bytes = map.box[0] * map.box[1] * map.box[2],
                    .barrier = barrier_place(copy.barrier, Scope::block, copy.instruction),
                    .map = map};
  std::copy_n(copy.coordinates, 3, transfer.coordinates);
  if (!SharedMemory::is_inside(transfer.offset, transfer.bytes)) {
    fail(name + ": " + std::to_string(transfer.bytes) + " bytes to address " +
         hexadecimal(destination) + " do not lie in shared memory");
  }
  if (transfer.offset % kTileAlignment != 0) {
    fail(name + ": a tile at " + hexadecimal(destination) + ", no multiple of " +
         std::to_string(kTileAlignment));
  }
  const unsigned blocks = copy.blocks != 0 ? copy.blocks : 1u << cluster().rank();
  if (blocks >> cluster().size() != 0) {
    fail(name + ": a mask of blocks " + hexadecimal(blocks) + " in a cluster of " +
         std::to_string(cluster().size()));
  }
  if (Recorder* watcher = recorder()) {
    std::vector<RecordedBarrier> receivers;
    for (unsigned rank = 0; rank < cluster().size(); ++rank) {
      if ((blocks >> rank & 1u) != 0)
        receivers.push_back(recorded({rank, transfer.barrier.offset}));
    }
    watcher->copy(cluster().warp_party(), copy.instruction, transfer.bytes, receivers);
  }
  for (unsigned rank = 0; rank < cluster().size(); ++rank) {
    if ((blocks >> rank & 1u) == 0) continue;
    if (cluster().block(rank).alive == 0) {
      fail(name + ": block " + std::to_string(cluster().block(rank).index) +
           ", to which a tile is sent, has ended");
    }
    transfer.rank = rank;
    transfer.barrier.rank = rank;
    cluster().transfers().issue(transfer);
  }
}

void copy_bulk(std::uint32_t destination, const void* source, std::uint32_t bytes,
               std::uint32_t barrier) {
  cluster().perhaps_yield();
  const char* instruction = "cp.async.bulk";
  if (is_mutated(Mutation::Kind::skip, instruction)) return;
  bytes += static_cast<std::uint32_t>(mutation_amount(instruction));
  const std::uint32_t offset = destination - kWindowBase;
  if (bytes % kChunkBytes != 0 || offset % kChunkBytes != 0 ||
      reinterpret_cast<std::uintptr_t>(source) % kChunkBytes != 0) {
    fail(std::string(instruction) + ": addresses and size must be multiples of 16");
  }
  if (!SharedMemory::is_inside(offset, bytes)) {
    fail(std::string(instruction) + ": " + std::to_string(bytes) + " bytes to address " +
         hexadecimal(destination) + " do not lie in shared memory");
  }
  const BarrierPlace place = barrier_place(barrier, Scope::block, instruction);
  if (Recorder* watcher = recorder()) {
    watcher->copy(cluster().warp_party(), instruction, bytes, {recorded(place)});
  }
  cluster().transfers().issue({.instruction = instruction,
                               .issuer = cluster().running(),
                               .rank = cluster().rank(),
                               .offset = offset,
                               .bytes = bytes,
                               .barrier = place,
                               .source = static_cast<const std::byte*>(source)});
}

void fence_proxy() { cluster().block().shared.fence(); }

}  // namespace openvc::model
