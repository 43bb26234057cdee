// SPDX-License-Identifier: BSD-3-Clause
#include "machine/access.hpp"

#include <algorithm>
#include <map>

#include "machine/cluster.hpp"

namespace openvc::model {
namespace {

struct Guarded {
  std::size_t bytes;
  std::size_t guard;
};

/// By their first address.
std::map<std::uintptr_t, Guarded>& buffers() {
  static std::map<std::uintptr_t, Guarded> all;
  return all;
}

/// Notes an access in a log; gives a deed of another warp that may come at the same time.
std::optional<AccessLog::Deed> note(AccessLog::Word& word, AccessLog::Deed mine, bool stores,
                                    const Clock& clock) {
  const auto is_unordered = [&](const AccessLog::Deed& deed) {
    return deed.count != 0 && deed.warp != mine.warp && clock.at(deed.warp) < deed.count;
  };
  std::optional<AccessLog::Deed> other;
  if (is_unordered(word.store)) other = word.store;
  if (stores) {
    for (const AccessLog::Deed& load : word.loads) {
      if (is_unordered(load)) other = load;
    }
    word.store = mine;
  } else {
    if (word.loads[0].warp != mine.warp) word.loads[1] = word.loads[0];
    word.loads[0] = mine;
  }
  return other;
}

/// What is wrong with an access of the block's shared memory; empty if nothing.
std::string shared_violation(std::uint32_t offset, const Access& access) {
  SharedMemory& shared = cluster().block().shared;
  const Clock& clock = cluster().clock();
  const auto end = offset + static_cast<std::uint32_t>(access.bytes);
  const auto address = [&] { return hexadecimal(kWindowBase + offset); };
  const std::uint32_t first = offset / kChunkBytes * kChunkBytes;
  for (std::uint32_t at = first; shared.is_used_by_engines() && at < end; at += kChunkBytes) {
    const Chunk& chunk = shared.chunk(at);
    if (chunk.in_flight) {
      return access.verb() + address() + ", which a copy in flight of " +
             cluster().describe_warp(chunk.writer) + " writes";
    }
    if (chunk.party != Chunk::kNobody && clock.at(chunk.party) <= chunk.phase) {
      return access.verb() + address() + ", where a copy of " +
             cluster().describe_warp(chunk.writer) +
             " has written, and the warp has not waited for phase " + std::to_string(chunk.phase) +
             " of " + cluster().describe_barrier(cluster().rank(), chunk.barrier);
    }
  }
  // Bytes of a word may be of several warps.
  if (access.bytes < AccessLog::kWordBytes) return {};
  const AccessLog::Deed mine{cluster().warp_party(), clock.at(cluster().warp_party()) + 1};
  for (std::uint32_t at = offset; at < end; at += AccessLog::kWordBytes) {
    const auto other = note(shared.accesses().word(at), mine, access.stores, clock);
    if (!other) continue;
    return access.verb() + address() + ", and nothing orders an access of " +
           cluster().describe_warp_of_party(other->warp) + " before this";
  }
  return {};
}

}  // namespace

Window window;

void observe_shared(const Access& access) {
  const auto address = reinterpret_cast<std::uintptr_t>(access.address);
  const std::string violation =
      shared_violation(static_cast<std::uint32_t>(address - window.begin), access);
  if (!violation.empty()) cluster().abandon(violation);
}

void observe_global(const Access& access) {
  const std::string violation = guard_violation(access);
  if (!violation.empty()) cluster().abandon(violation);
}

void guard_memory(const void* buffer, std::size_t bytes, std::size_t guard) {
  buffers()[reinterpret_cast<std::uintptr_t>(buffer)] = {bytes, guard};
}

void release_memory(const void* buffer) {
  buffers().erase(reinterpret_cast<std::uintptr_t>(buffer));
}

std::string guard_violation(const Access& access) {
  const auto& all = buffers();
  const auto address = reinterpret_cast<std::uintptr_t>(access.address);
  const auto after = all.upper_bound(address);
  const auto text = [&](std::size_t bytes, std::size_t distance, const char* side) {
    return std::string(access.verb()) + std::to_string(access.bytes) + " bytes of global memory, " +
           std::to_string(distance) + " bytes " + side + " a buffer of " + std::to_string(bytes);
  };
  if (after != all.end() && address + after->second.guard >= after->first) {
    return text(after->second.bytes, after->first - address, "before");
  }
  if (after == all.begin()) return {};
  const auto& [start, buffer] = *std::prev(after);
  const std::size_t end = start + buffer.bytes;
  if (address + access.bytes <= end || address >= end + buffer.guard) return {};
  return text(buffer.bytes, address + access.bytes - end, "beyond the end of");
}

AccessLog::Word& AccessLog::word(std::uint32_t offset) {
  const std::size_t number = offset / kWordBytes;
  const std::size_t page = number / kPageWords;
  if (page >= pages_.size()) pages_.resize(page + 1);
  if (pages_[page] == nullptr) pages_[page] = std::make_unique<Page>();
  return (*pages_[page])[number % kPageWords];
}

std::optional<AccessLog::Deed> AccessLog::find_unordered(std::uint32_t offset, std::uint32_t bytes,
                                                         const Clock& clock) const {
  const auto is_unordered = [&](const Deed& deed) {
    return deed.count != 0 && clock.at(deed.warp) < deed.count;
  };
  for (std::size_t number = offset / kWordBytes; number < (offset + bytes) / kWordBytes; ++number) {
    const std::size_t page = number / kPageWords;
    if (page >= pages_.size()) break;
    if (pages_[page] == nullptr) {
      number = (page + 1) * kPageWords - 1;
      continue;
    }
    const Word& word = (*pages_[page])[number % kPageWords];
    for (const Deed& deed : {word.store, word.loads[0], word.loads[1]}) {
      if (is_unordered(deed)) return deed;
    }
  }
  return std::nullopt;
}

}  // namespace openvc::model
