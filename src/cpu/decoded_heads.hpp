// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cpu/aligned_buffer.hpp"
#include "cpu/attention_kernel.hpp"
#include "cpu/prepared_sections.hpp"
#include "cpu/thread_pool.hpp"

namespace openvc::cpu {

/// One block of keys as the kernel reads it.
struct DecodedBlock {
  const std::byte* keys = nullptr;    // words (kKeyBlock, columns / word_elements)
  const std::byte* values = nullptr;  // words (value_rows, kKeyBlock / word_elements)
  bool has_nan = false;               // in keys
};

/// Keys and values of some heads, decoded once for all queries.
class DecodedHeads {
 public:
  DecodedHeads(const AttentionKernel& kernel, const schedule::PreparedView& inputs,
               std::int64_t max_heads);

  /// Replaces the contents by the heads [first, first + count), count <= max_heads.
  void decode(std::int64_t first, std::int64_t count, ThreadPool& pool);

  [[nodiscard]] DecodedBlock block(std::int64_t bh, std::int64_t key_block) const;

  /// Bytes of one head.
  static std::size_t head_bytes(const AttentionKernel& kernel,
                                const schedule::PreparedView& inputs);

 private:
  [[nodiscard]] std::size_t slot(std::int64_t bh, std::int64_t key_block) const {
    return static_cast<std::size_t>((bh - first_) * blocks_ + key_block);
  }
  void decode_block(std::int64_t bh, std::int64_t key_block);

  const AttentionKernel& kernel_;
  PreparedSections sections_;
  std::int64_t blocks_;    // per head, those of repair rows included
  std::size_t key_bytes_;  // of one block
  std::size_t value_bytes_;
  std::int64_t first_ = 0;
  AlignedBuffer<std::byte> words_;     // [head][block] keys, values
  std::vector<std::uint8_t> has_nan_;  // [head][block]
};

}  // namespace openvc::cpu
