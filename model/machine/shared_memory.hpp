// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "machine/access.hpp"
#include "machine/clock.hpp"
#include "machine/machine.hpp"

namespace openvc::model {

/// Where the window of a block's own shared memory begins: address 0 is nobody's.
inline constexpr std::uint32_t kWindowBase = 0x400;
/// Bits of an address above the window: the rank of the block, counted from 1; 0 is this block.
inline constexpr int kWindowBits = 24;
/// What copies and products count shared memory in.
inline constexpr std::uint32_t kChunkBytes = 16;

/// What is known of a chunk of shared memory.
struct Chunk {
  std::uint32_t copy = 0;     // number of the copy of a tile that wrote it; 0: none
  std::uint16_t row = 0;      // of the tile
  std::uint8_t column = 0;    // chunk of the row
  std::uint8_t swizzle = 0;   // span in bytes
  bool in_flight = false;     // a copy that will write it has been issued
  std::uint32_t writer = 0;   // thread of the cluster that has issued that copy, or the last one
  std::uint32_t barrier = 0;  // offset of the one that counted the last copy
  Party party = kNobody;      // the same, as clocks know it
  std::uint64_t phase = 0;    // in which it did

  static constexpr Party kNobody = ~Party{0};
};

/// Shared memory of a block, and as the asynchronous engines see it: what threads store reaches
/// them with a proxy fence.
class SharedMemory {
 public:
  SharedMemory();

  [[nodiscard]] std::byte* data() const { return base_; }
  /// Place of an object, nothing if it is not inside.
  [[nodiscard]] std::optional<std::uint32_t> offset_of(const void* pointer,
                                                       std::size_t bytes) const;
  [[nodiscard]] static bool is_inside(std::uint32_t offset, std::size_t bytes) {
    return bytes <= kSharedBytes && offset <= kSharedBytes - bytes;
  }

  void reserve_dynamic(std::size_t bytes) { static_end_ = bytes; }
  /// Static memory of a key, null if there is no room.
  void* static_object(const void* key, std::size_t bytes, std::size_t alignment);

  /// Whether a copy or a product has had to do with it.
  [[nodiscard]] bool is_used_by_engines() const { return view_ != nullptr; }
  [[nodiscard]] Chunk& chunk(std::uint32_t offset) { return view().chunks[offset / kChunkBytes]; }

  /// Number of the last product of a warp that reads from the page of an offset.
  [[nodiscard]] std::uint64_t& last_reader(std::uint32_t offset, unsigned warp) {
    return view().readers[std::size_t{offset / kPageBytes} * kMostWarps + warp];
  }
  /// Of threads.
  [[nodiscard]] AccessLog& accesses() { return accesses_; }

  static constexpr std::uint32_t kPageBytes = 1024;  // tiles have their own
  static constexpr unsigned kMostWarps = 32;

  /// A store by an engine; null stores poison.
  void store(std::uint32_t offset, const std::byte* source, std::uint32_t bytes);
  /// Whether the engines see in a chunk what threads see.
  [[nodiscard]] bool is_fenced(std::uint32_t offset) const;
  void fence();
  /// Whether a chunk holds what memory starts with.
  [[nodiscard]] bool is_poison(std::uint32_t offset) const;

 private:
  /// What engines see and what is known of it: made when the first of them comes.
  struct View {
    std::vector<std::byte> seen;
    std::vector<Chunk> chunks;
    std::vector<std::uint64_t> readers;
  };
  [[nodiscard]] View& view() const;

  std::unique_ptr<std::byte[]> memory_;
  mutable std::unique_ptr<View> view_;
  AccessLog accesses_;
  std::byte* base_ = nullptr;
  std::size_t static_end_ = 0;
  std::map<const void*, void*> static_objects_;
};

}  // namespace openvc::model
