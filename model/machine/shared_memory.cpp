// SPDX-License-Identifier: BSD-3-Clause
#include "machine/shared_memory.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

namespace openvc::model {
namespace {

constexpr std::size_t kAlignment = 1024;

}  // namespace

SharedMemory::SharedMemory()
    : memory_(std::make_unique_for_overwrite<std::byte[]>(kSharedBytes + kAlignment)) {
  void* start = memory_.get();
  std::size_t room = kSharedBytes + kAlignment;
  base_ = static_cast<std::byte*>(std::align(kAlignment, kSharedBytes, start, room));
  std::memset(base_, kPoison, kSharedBytes);
}

SharedMemory::View& SharedMemory::view() const {
  if (view_ == nullptr) {
    view_ = std::make_unique<View>(
        View{std::vector<std::byte>(kSharedBytes, std::byte{kPoison}),
             std::vector<Chunk>(kSharedBytes / kChunkBytes),
             std::vector<std::uint64_t>(kSharedBytes / kPageBytes * kMostWarps)});
  }
  return *view_;
}

std::optional<std::uint32_t> SharedMemory::offset_of(const void* pointer, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto base = reinterpret_cast<std::uintptr_t>(base_);
  if (address < base || address + bytes > base + kSharedBytes) return std::nullopt;
  return static_cast<std::uint32_t>(address - base);
}

void* SharedMemory::static_object(const void* key, std::size_t bytes, std::size_t alignment) {
  const auto found = static_objects_.find(key);
  if (found != static_objects_.end()) return found->second;
  const std::size_t start = (static_end_ + alignment - 1) / alignment * alignment;
  if (start + bytes > kSharedBytes) return nullptr;
  static_end_ = start + bytes;
  return static_objects_[key] = base_ + start;
}

void SharedMemory::store(std::uint32_t offset, const std::byte* source, std::uint32_t bytes) {
  for (std::byte* target : {base_ + offset, view().seen.data() + offset}) {
    if (source == nullptr) {
      std::memset(target, kPoison, bytes);
    } else {
      std::memcpy(target, source, bytes);
    }
  }
}

bool SharedMemory::is_fenced(std::uint32_t offset) const {
  return std::memcmp(base_ + offset, view().seen.data() + offset, kChunkBytes) == 0;
}

bool SharedMemory::is_poison(std::uint32_t offset) const {
  return std::all_of(base_ + offset, base_ + offset + kChunkBytes,
                     [](std::byte byte) { return byte == std::byte{kPoison}; });
}

void SharedMemory::fence() {
  const std::size_t used =
      std::min(kSharedBytes, (static_end_ + kChunkBytes - 1) / kChunkBytes * kChunkBytes);
  for (std::uint32_t offset = 0; offset < used; offset += kChunkBytes) {
    // What was stored over a tile is no part of it.
    if (!is_fenced(offset)) chunk(offset).copy = 0;
  }
  std::memcpy(view().seen.data(), base_, used);
}

}  // namespace openvc::model
