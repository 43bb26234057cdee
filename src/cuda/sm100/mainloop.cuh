// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/parameters.cuh"
#include "cuda/ptx/f32x2.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/tensor_memory.cuh"
#include "cuda/sm100/config.hpp"
#include "cuda/sm100/softmax.cuh"
#include "cuda/sm100/storage.cuh"
#include "schedule/mask.hpp"
#include "schedule/traversal.hpp"

// One consumer warpgroup: the 128 query rows of a tile, one for each thread, against all key
// blocks.
//
// Every key block is a softmax of its own. Its product with V goes to `partial` in tensor memory,
// from where it is added to the binary32 accumulator in registers by the weight of the block: the
// numeric contract as it is, with nothing to rescale in tensor memory. Sums come first, because the
// product of the other tile waits for their columns:
//
//   sums (i) -> accumulator   scores (i+1) -> registers -> codes (i+1) -> tensor memory
//
// Loads overlap: a chunk of the sums is added while the next arrives, the last while scores do.
// Codes of the first half of the keys are handed over before those of the second are made.
namespace openvc::cuda::sm100 {

/// Columns of `partial` that are read: channels, residual columns of V, one column of ones.
inline constexpr int kAccumulatorRegisters = numerics::kHeadDim + numerics::kValueColumns + 1;
inline constexpr int kSumRegister = kAccumulatorRegisters - 1;

template <class Config>
struct Consumer {
  static constexpr KernelConfig kConfig = Config::kValue;
  using Shared = Storage<Config>;

  const Parameters& parameters;
  Shared& shared;
  int tile;               // of the block's query tiles
  std::uint32_t columns;  // of tensor memory: the first, in the lanes of the warp

  std::uint32_t query_parity = 0;
  std::uint32_t score_parity = 0;
  std::uint32_t partial_parity = 0;

  // Of the current work item.
  numerics::HeadRule head{};
  int query_block = 0;  // in units of kRowsPerBlock
  // With a causal mask: keys of the first block that the first row sees, if there are as many; each
  // further row sees one more, and each further block begins a block of keys before.
  int causal_limit = 0;

  float accumulator[kAccumulatorRegisters];
  std::uint32_t reference = kLeastTops;  // of wide heads, in units of the accumulated scores
  float weight = 0.0f;                   // of the block whose sums are on their way

  [[nodiscard]] __device__ static int lane() {
    return static_cast<int>(threadIdx.x) % kWarpThreads;
  }
  [[nodiscard]] __device__ static int warp() {
    return static_cast<int>(threadIdx.x) / kWarpThreads % kWarpgroupWarps;
  }

  // ---- work items -----------------------------------------------------------------------------

  /// First row of this query tile.
  [[nodiscard]] __device__ std::int64_t tile_row() const {
    return std::int64_t{query_block} * kRowsPerBlock + tile * kRowsPerTile;
  }
  [[nodiscard]] __device__ std::int64_t row() const {
    return tile_row() + kWarpThreads * warp() + lane();
  }
  [[nodiscard]] __device__ schedule::TileSequence tiles(const schedule::Problem& problem) const {
    static_assert(kRowsPerBlock == numerics::kQueryBlock);
    return schedule::tile_sequence(problem, query_block);
  }

  __device__ __forceinline__ void begin_work(const numerics::HeadRule& head_rule,
                                             const schedule::WorkTile& work) {
    head = head_rule;
    query_block = static_cast<int>(work.query_tile);
    reference = kLeastTops;
#pragma unroll
    for (float& value : accumulator) value = 0.0f;
    if constexpr (kConfig.causal) {
      const schedule::Problem problem = parameters.problem_of(work.batch_head);
      const std::int64_t first_key = tiles(problem).traversal.block(0) * numerics::kKeyBlock;
      causal_limit = static_cast<int>(tile_row() + schedule::causal_start(problem) - first_key);
    }
    // The code of V has arrived; that of the item before is no longer needed.
    ptx::mbarrier_wait(ptx::shared_address(&shared.query_full), query_parity);
    query_parity ^= 1;
    arrive(shared.query_empty);
  }

  /// Code of V of the current work item.
  [[nodiscard]] __device__ const typename Shared::ValueCode& value_code() const {
    return shared.value_codes[query_parity ^ 1];
  }

  /// One arrival per warp, when all lanes have come so far.
  __device__ static void arrive(std::uint64_t& barrier) {
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive(ptx::shared_address(&barrier));
  }

  // ---- per key block --------------------------------------------------------------------------

  // Two chunks, or scores and the last columns, fit into the registers beside the accumulator.
  static constexpr int kChunkColumns = 40;
  static constexpr int kLastColumns = 16;
  using Chunk = float[kChunkColumns];

  /// Begins to load the scores of the next block.
  __device__ __forceinline__ void begin_scores(Scores& scores) {
    ptx::mbarrier_wait(ptx::shared_address(&shared.score_full[tile]), score_parity);
    score_parity ^= 1;
    ptx::tcgen05_fence_after_thread_sync();
    ptx::tcgen05_ld_32x32b_x64_pack_16b(
        scores, columns + static_cast<std::uint32_t>(tensor_memory::kScores +
                                                     tile * tensor_memory::kScoreColumns));
  }

  __device__ __forceinline__ void end_scores(Scores& scores) {
    ptx::tcgen05_wait_ld();
    ptx::tensor_memory_fence_operand(scores);
  }

  /// Hides the keys of a block that this row does not see; the tile's first row sees `limit`.
  __device__ __forceinline__ void mask(Scores& scores, int limit) const {
    mask_scores(scores, limit + kWarpThreads * warp() + lane());
  }

  /// What a block does to the row: its own weight, and a new reference.
  struct Block {
    float weight;
    std::uint32_t reference;
  };

  /// Turns the scores of step `step` into codes.
  template <ExpCastPath kPath>
  __device__ __forceinline__ Block softmax(Scores& scores, int step) {
    if constexpr (kConfig.causal) {
      const int limit = causal_limit + step * numerics::kKeyBlock;
      if (limit < numerics::kKeyBlock) mask(scores, limit);
    }
    const std::uint32_t top = block_top(scores);
    hand_over<kPath, 0>(scores, top);
    hand_over<kPath, 1>(scores, top);
    if constexpr (kPath == ExpCastPath::narrow) {
      return {narrow_weight(ptx::cvt_f32_f16_low(top)), reference};
    } else {
      const std::uint32_t moved = ptx::max_f16x2(reference, top);
      return {wide_weight(ptx::cvt_f32_f16_low(top), ptx::cvt_f32_f16_low(moved), head), moved};
    }
  }

  /// Hands codes to the multiplier, which begins with the first part. It also says that the scores
  /// have been read. The product of the block before has ended.
  template <ExpCastPath kPath, int kPart>
  __device__ __forceinline__ void hand_over(const Scores& scores, std::uint32_t top) const {
    static_assert(tensor_memory::kProbabilityParts == 2 && tensor_memory::kPartColumns == 16);
    Probabilities probabilities;
    exp_cast<kPath, kPart>(scores, probabilities, top, head);
    ptx::tcgen05_st_32x32b_x16(
        columns + static_cast<std::uint32_t>(tensor_memory::kProbabilities +
                                             tile * tensor_memory::kProbabilityColumns +
                                             kPart * tensor_memory::kPartColumns),
        probabilities);
    ptx::tcgen05_wait_st();
    ptx::tcgen05_fence_before_thread_sync();
    arrive(shared.probability_full[tile * tensor_memory::kProbabilityParts + kPart]);
  }

  /// accumulator += weight * partial, but for the last columns, which come back in `last`. A chunk
  /// of columns arrives while the one before is added.
  __device__ __forceinline__ void promote(Chunk& last) {
    static_assert(tensor_memory::part_begin(1) == 80 && kAccumulatorRegisters == 136);
    Chunk first;
    begin_part(0);
    load_sums<40>(first, 0);
    wait_for_sums(first);
    load_sums<40>(last, 40);
    add<40>(first, 0);
    wait_for_sums(last);
    end_part(0);
    begin_part(1);
    load_sums<40>(first, 80);
    add<40>(last, 40);
    wait_for_sums(first);
    load_sums<kLastColumns>(last, kAccumulatorRegisters - kLastColumns);
    add<40>(first, 80);
    wait_for_sums(last);
    end_part(1);
    partial_parity ^= 1;
  }

  __device__ __forceinline__ void promote_last(const Chunk& last) {
    add<kLastColumns>(last, kAccumulatorRegisters - kLastColumns);
  }

  [[nodiscard]] __device__ int part(int index) const {
    return tile * tensor_memory::kPartialParts + index;
  }

  __device__ __forceinline__ void begin_part(int index) {
    ptx::mbarrier_wait(ptx::shared_address(&shared.partial_full[part(index)]), partial_parity);
    ptx::tcgen05_fence_after_thread_sync();
  }

  __device__ __forceinline__ void end_part(int index) {
    ptx::tcgen05_fence_before_thread_sync();
    arrive(shared.partial_empty[part(index)]);
  }

  /// Begins to load columns of partial.
  template <int kColumns>
  __device__ __forceinline__ void load_sums(Chunk& chunk, std::uint32_t first) const {
    const std::uint32_t address = columns + tensor_memory::kPartial + first;
    static_assert(kColumns <= kChunkColumns && kColumns < 64 && kColumns % 8 == 0);
    if constexpr (kColumns >= 32) {
      ptx::tcgen05_ld_32x32b_x32(reinterpret_cast<float(&)[32]>(chunk), address);
    }
    if constexpr (kColumns % 32 >= 16) {
      constexpr int kFirst = kColumns / 32 * 32;
      ptx::tcgen05_ld_32x32b_x16(reinterpret_cast<float(&)[16]>(chunk[kFirst]), address + kFirst);
    }
    if constexpr (kColumns % 16 != 0) {
      constexpr int kFirst = kColumns - 8;
      ptx::tcgen05_ld_32x32b_x8(reinterpret_cast<float(&)[8]>(chunk[kFirst]), address + kFirst);
    }
  }

  __device__ __forceinline__ static void wait_for_sums(Chunk& chunk) {
    ptx::tcgen05_wait_ld();
    ptx::tensor_memory_fence_operand(chunk);
  }

  template <int kColumns>
  __device__ __forceinline__ void add(const Chunk& chunk, int first) {
#pragma unroll
    for (int i = 0; i < kColumns; i += 2) {
      ptx::fma_rn_f32x2(accumulator[first + i], accumulator[first + i + 1], chunk[i], chunk[i + 1],
                        weight);
    }
  }

  /// The sums of a block have been added; the next one begins.
  template <ExpCastPath kPath>
  __device__ __forceinline__ void begin_block(const Block& block) {
    weight = block.weight;
    if constexpr (kPath == ExpCastPath::wide) {
      // The vote keeps the instructions of rare maxima out of most blocks.
      if (__any_sync(0xFFFF'FFFFu, block.reference != reference)) {
        const float rescale = wide_weight(ptx::cvt_f32_f16_low(reference),
                                          ptx::cvt_f32_f16_low(block.reference), head);
#pragma unroll
        for (float& value : accumulator) value *= rescale;
        reference = block.reference;
      }
    }
  }

  // ---- main loop ------------------------------------------------------------------------------

  /// All `count` >= 1 key blocks.
  template <ExpCastPath kPath>
  __device__ __forceinline__ void mainloop(int count) {
    Scores scores;
    Chunk last;
    begin_scores(scores);
#pragma unroll 1
    for (int step = 0;; ++step) {
      end_scores(scores);
      begin_block<kPath>(softmax<kPath>(scores, step));
      promote(last);
      if (step + 1 == count) break;
      begin_scores(scores);
      promote_last(last);
    }
    promote_last(last);
  }

  /// The main loop that is compiled for the rule of this head, over so many key blocks.
  __device__ __forceinline__ void run_mainloop(int count) {
    if (count == 0) return;
    if (head.wide()) return mainloop<ExpCastPath::wide>(count);
    mainloop<ExpCastPath::narrow>(count);
  }
};

}  // namespace openvc::cuda::sm100
