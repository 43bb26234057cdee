// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/decoded_heads.hpp"

namespace openvc::cpu {
namespace {

using numerics::kColumnsPerStep;
using numerics::kHeadDim;
using numerics::kKeyBlock;

/// Heads without residual columns leave the end of their block unused.
std::size_t key_block_bytes(const AttentionKernel& kernel, const schedule::PreparedView& inputs) {
  return kernel.word_bytes(kKeyBlock * (kHeadDim + inputs.max_extra_steps * kColumnsPerStep));
}

std::size_t value_block_bytes(const AttentionKernel& kernel, const schedule::PreparedView& inputs) {
  return kernel.word_bytes(kKeyBlock * (inputs.with_value_axes ? kMaxValueRows : kHeadDim));
}

}  // namespace

DecodedHeads::DecodedHeads(const AttentionKernel& kernel, const schedule::PreparedView& inputs,
                           std::int64_t max_heads)
    : kernel_(kernel),
      sections_(inputs),
      blocks_(inputs.problem.padded_key_blocks()),
      key_bytes_(key_block_bytes(kernel, inputs)),
      value_bytes_(value_block_bytes(kernel, inputs)),
      words_(static_cast<std::size_t>(max_heads) * head_bytes(kernel, inputs)),
      has_nan_(static_cast<std::size_t>(max_heads * blocks_)) {}

std::size_t DecodedHeads::head_bytes(const AttentionKernel& kernel,
                                     const schedule::PreparedView& inputs) {
  return static_cast<std::size_t>(inputs.problem.padded_key_blocks()) *
         (key_block_bytes(kernel, inputs) + value_block_bytes(kernel, inputs));
}

void DecodedHeads::decode(std::int64_t first, std::int64_t count, ThreadPool& pool) {
  first_ = first;
  pool.parallel_for(count * blocks_, [this](std::int64_t index, int) {
    decode_block(first_ + index / blocks_, index % blocks_);
  });
}

void DecodedHeads::decode_block(std::int64_t bh, std::int64_t key_block) {
  const std::int64_t first_key = key_block * kKeyBlock;
  const int columns = sections_.columns(bh);
  const auto row_bytes = static_cast<std::int64_t>(kernel_.word_bytes(columns));
  std::byte* keys = words_.data() + slot(bh, key_block) * (key_bytes_ + value_bytes_);
  bool nan = kernel_.decode(sections_.key_row(bh, first_key), kHeadDim, kKeyBlock, kHeadDim, keys,
                            row_bytes);
  for (int step = 0; step * kColumnsPerStep + kHeadDim < columns; ++step) {
    std::byte* place = keys + kernel_.word_bytes(kHeadDim + step * kColumnsPerStep);
    nan |= kernel_.decode(sections_.key_columns(step, bh, first_key), kColumnsPerStep, kKeyBlock,
                          kColumnsPerStep, place, row_bytes);
  }
  has_nan_[slot(bh, key_block)] = nan ? 1 : 0;
  kernel_.decode(sections_.value_block(bh, key_block), kKeyBlock, sections_.value_rows(bh),
                 kKeyBlock, keys + key_bytes_,
                 static_cast<std::int64_t>(kernel_.word_bytes(kKeyBlock)));
}

DecodedBlock DecodedHeads::block(std::int64_t bh, std::int64_t key_block) const {
  const std::size_t index = slot(bh, key_block);
  const std::byte* keys = words_.data() + index * (key_bytes_ + value_bytes_);
  return {keys, keys + key_bytes_, has_nan_[index] != 0};
}

}  // namespace openvc::cpu
