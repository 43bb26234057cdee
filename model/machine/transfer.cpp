// SPDX-License-Identifier: BSD-3-Clause
#include "machine/transfer.hpp"

#include <algorithm>
#include <array>
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

/// Throws if a product may still read what a copy writes.
void TransferQueue::expect_no_readers(const Transfer& transfer) {
  SharedMemory& shared = cluster().block(transfer.rank).shared;
  constexpr std::uint32_t kPage = SharedMemory::kPageBytes;
  const std::uint32_t first = transfer.offset / kPage * kPage;
  for (std::uint32_t page = first; page < transfer.offset + transfer.bytes; page += kPage) {
    for (unsigned warp = 0; warp < cluster().warps_of_block(); ++warp) {
      const std::uint64_t product = shared.last_reader(page, warp);
      if (product <= cluster().clock().at(cluster().product_party(transfer.rank, warp))) continue;
      fail(std::string(transfer.instruction) + ": writes to " + hexadecimal(kWindowBase + page) +
           " of block " + std::to_string(cluster().block(transfer.rank).index) +
           ", and nothing orders a product of " +
           cluster().describe_warp(transfer.rank * cluster().grid().threads + warp * kWarpLanes) +
           " that reads there before this");
    }
  }
}

void TransferQueue::issue(const Transfer& transfer) {
  check_initialised(transfer.barrier, Scope::cluster, transfer.instruction);
  expect_no_readers(transfer);
  SharedMemory& shared = cluster().block(transfer.rank).shared;
  if (const auto deed =
          shared.accesses().find_unordered(transfer.offset, transfer.bytes, cluster().clock());
      deed && deed->warp != cluster().warp_party()) {
    fail(std::string(transfer.instruction) + ": writes to " +
         hexadecimal(kWindowBase + transfer.offset) + " and behind, of block " +
         std::to_string(cluster().block(transfer.rank).index) +
         ", and nothing orders an access of " + cluster().describe_warp_of_party(deed->warp) +
         " before this");
  }
  for_each_chunk(transfer, [&](std::uint32_t offset, std::uint32_t, std::uint32_t) {
    Chunk& chunk = shared.chunk(offset);
    const auto refuse = [&](const std::string& text) {
      fail(std::string(transfer.instruction) + ": writes to " + hexadecimal(kWindowBase + offset) +
           " of block " + std::to_string(cluster().block(transfer.rank).index) + text);
    };
    if (chunk.in_flight) {
      refuse(", as does a copy in flight of " + cluster().describe_warp(chunk.writer));
    }
    if (chunk.party != Chunk::kNobody && cluster().clock().at(chunk.party) <= chunk.phase) {
      refuse(", where a copy of " + cluster().describe_warp(chunk.writer) +
             " has written that nobody has waited for: phase " + std::to_string(chunk.phase) +
             " of " + cluster().describe_barrier(transfer.rank, chunk.barrier));
    }
    chunk.in_flight = true;
    chunk.writer = transfer.issuer;
    shared.store(offset, nullptr, kChunkBytes);
  });
  in_flight_.push_back(transfer);
  if (cluster().schedule().engines == Engines::eager) complete(in_flight_.size() - 1);
}

void TransferQueue::complete(std::size_t index) {
  const Transfer transfer = in_flight_[index];
  in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(index));
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
