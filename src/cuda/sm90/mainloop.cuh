// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/synchronize.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/config.hpp"
#include "cuda/sm90/load.cuh"
#include "cuda/sm90/softmax.cuh"
#include "cuda/sm90/storage.cuh"
#include "schedule/mask.hpp"
#include "schedule/ring_state.hpp"

// One computing warpgroup: 64 query rows against all key blocks.
//
// Score products run two tiles ahead of the value products, in two score buffers A and B, so that
// the tensor core always has work queued while the warpgroup turns the tile between into codes:
//
//   issue    P(i) V(i)   Q K(i+2)
//   tensor   |-- PV i --|-- QK i+2 --|
//   warps               |  promote, maximum and codes of tile i+1  |
//
// The FP8 accumulator of Hopper keeps 14 bits and truncates. Value products therefore go into
// `partial`, which is added to the binary32 accumulator every second tile (256 keys).
namespace openvc::cuda::sm90 {

inline constexpr int kValueColumns = numerics::kHeadDim + kOnesRows;
inline constexpr int kAccumulatorRegisters = kValueColumns / 2;
// Registers of the ones-columns that hold the row sums of rows g and g + 8; the others repeat them.
inline constexpr int kLowSum = numerics::kHeadDim / 2;
inline constexpr int kHighSum = numerics::kHeadDim / 2 + 2;

template <class Config>
struct Consumer {
  static constexpr KernelConfig kConfig = Config::kValue;
  using Shared = Storage<Config>;
  enum class Buffer { a, b };

  const Parameters& parameters;
  Shared& shared;
  BlockPlace place;
  int warpgroup;  // 0 or 1

  schedule::RingState<kConfig.key_stages> key_ring{};  // next tile to multiply
  schedule::RingState<kConfig.value_stages> value_ring{};
  std::uint32_t query_parity = 0;

  // Of the current work item. Few and small: every register counts in the main loop, and what only
  // rare paths need is computed there again.
  schedule::HeadRule head{};
  int query_tile = 0;  // in units of kRowsPerBlock
  int mask_begin = 0;  // steps whose scores need masking
  int mask_count = 0;

  Scores scores_a;
  Scores scores_b;
  Probabilities probabilities;
  std::uint32_t query[kConfig.query_in_registers ? 4 * kScoreSteps : 1];
  float partial[kAccumulatorRegisters];
  float accumulator[kAccumulatorRegisters];
  RowPair::Factors growth;  // still to be applied to `accumulator`
  RowPair rows;

  [[nodiscard]] __device__ static int lane() {
    return static_cast<int>(threadIdx.x) % kWarpThreads;
  }
  [[nodiscard]] __device__ static int warp() {
    return static_cast<int>(threadIdx.x) / kWarpThreads % kWarpgroupWarps;
  }

  // ---- work items -----------------------------------------------------------------------------

  /// Row g of this thread's pair; the other is g + 8.
  [[nodiscard]] __device__ std::int64_t first_row() const {
    return static_cast<std::int64_t>(query_tile) * kRowsPerBlock + warpgroup * kRowsPerWarpgroup +
           16 * warp() + lane() / 4;
  }

  [[nodiscard]] __device__ TileSequence tiles() const {
    return TileSequence(parameters.problem, static_cast<std::int64_t>(query_tile) * kRowsPerBlock /
                                                numerics::kQueryBlock);
  }

  /// Blocks that the query block of this tile visits under a causal mask.
  [[nodiscard]] __device__ std::int64_t causal_blocks() const {
    const schedule::Problem& problem = parameters.problem;
    constexpr int kTiles = numerics::kQueryBlock / kRowsPerBlock;
    const std::int64_t end =
        static_cast<std::int64_t>(query_tile / kTiles + 1) * numerics::kQueryBlock;
    const std::int64_t last = (end < problem.queries ? end : problem.queries) - 1;
    return numerics::ceil_div(schedule::visible_keys(problem, last), numerics::kKeyBlock);
  }

  __device__ __forceinline__ void begin_work(const schedule::HeadRule& head_rule, int tile) {
    const schedule::Problem& problem = parameters.problem;
    head = head_rule;
    query_tile = tile;
    rows = RowPair{};
    growth = {};
#pragma unroll
    for (float& value : accumulator) value = 0.0f;
    const schedule::Traversal traversal = tiles().traversal;
    const auto scanned = static_cast<int>(traversal.blocks);
    if (problem.mask == Mask::none) {
      // Only the last block can be incomplete. It is visited first, or right after block 0.
      const bool complete = problem.keys % numerics::kKeyBlock == 0;
      const auto first = static_cast<int>(traversal.first);
      mask_begin = first == scanned - 1 ? 0 : first + 1;
      mask_count = complete ? 0 : 1;
    } else {
      // Blocks are visited in descending order; those that the first row sees whole need no mask.
      const std::int64_t row =
          static_cast<std::int64_t>(tile) * kRowsPerBlock + warpgroup * kRowsPerWarpgroup;
      const auto whole =
          static_cast<int>(schedule::visible_keys(problem, row) / numerics::kKeyBlock);
      mask_begin = 0;
      mask_count = scanned - (whole < scanned ? whole : scanned);
    }
  }

  __device__ void release_query() const {
    if (lane() == 0) ptx::mbarrier_arrive(ptx::shared_address(&shared.query_empty));
  }

  /// Reads this warpgroup's Q tile as A operands: rows g and g + 8, four bytes at 4t and 16 + 4t of
  /// every k-step, through the 128-byte swizzle.
  __device__ __forceinline__ void load_query_fragments() {
    const std::uint8_t* tile =
        shared.query_codes + warpgroup * kRowsPerWarpgroup * numerics::kHeadDim;
#pragma unroll
    for (int step = 0; step < kScoreSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * warp() + lane() / 4 + 8 * (i % 2);
        const int chunk = 2 * step + i / 2;  // of 16 bytes
        query[4 * step + i] = *reinterpret_cast<const std::uint32_t*>(
            tile + row * numerics::kHeadDim + ((chunk ^ (row % 8)) * 16) + 4 * (lane() % 4));
      }
    }
  }

  // ---- stages ---------------------------------------------------------------------------------

  /// One arrival per warp, at the block that loads this kind of tile.
  __device__ void release(std::uint64_t& barrier, std::uint32_t owner) const {
    if (lane() == 0) {
      const std::uint32_t address = ptx::shared_address(&barrier);
      if constexpr (kConfig.cluster_size == 1) {
        ptx::mbarrier_arrive(address);
      } else {
        ptx::mbarrier_arrive_cluster(ptx::mapa(address, owner));
      }
    }
  }

  /// Gives back the stage that was multiplied `kAge` tiles ago.
  template <int kAge>
  __device__ void release_keys() {
    constexpr std::uint32_t kStages = kConfig.key_stages;
    const std::uint32_t stage = key_ring.stage + (key_ring.stage < kAge ? kStages : 0) - kAge;
    release(shared.key_empty[stage], Loader<Config>::kKeyOwner);
  }

  __device__ void release_values() {
    constexpr std::uint32_t kStages = kConfig.value_stages;
    const std::uint32_t stage = value_ring.stage + (value_ring.stage < 1 ? kStages : 0) - 1;
    release(shared.value_empty[stage], Loader<Config>::kValueOwner);
  }

  // ---- products -------------------------------------------------------------------------------

  /// Issues scores = Q K^T of the tile at the head of the ring.
  __device__ __forceinline__ void issue_scores(Scores& scores) {
    auto& stage = shared.keys[key_ring.stage];
    ptx::mbarrier_wait(ptx::shared_address(&shared.key_full[key_ring.stage]), key_ring.parity);
    const std::uint64_t keys =
        ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(ptx::shared_address(stage.codes));
    const std::uint64_t queries = ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(
        ptx::shared_address(shared.query_codes) +
        static_cast<std::uint32_t>(warpgroup) * kRowsPerWarpgroup * numerics::kHeadDim);
    ptx::renew_registers(scores);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kScoreSteps; ++step) {
      const std::uint64_t b = ptx::advance_descriptor(keys, step * kStepBytes);
      if constexpr (kConfig.query_in_registers) {
        const std::uint32_t a[4] = {query[4 * step], query[4 * step + 1], query[4 * step + 2],
                                    query[4 * step + 3]};
        ptx::wgmma_m64n128k32_f16_rs(scores, a, b, step != 0);
      } else {
        ptx::wgmma_m64n128k32_f16_ss(scores, ptx::advance_descriptor(queries, step * kStepBytes), b,
                                     step != 0);
      }
    }
    if constexpr (kConfig.max_extra_steps > 0) issue_residual_columns(scores, stage);
    ptx::wgmma_commit_group();
  }

  template <class Stage>
  __device__ __forceinline__ void issue_residual_columns(Scores& scores, Stage& stage) {
    const std::uint64_t keys =
        ptx::matrix_descriptor<ptx::Swizzle::bytes_32>(ptx::shared_address(stage.columns));
    const std::uint64_t queries = ptx::matrix_descriptor<ptx::Swizzle::bytes_32>(
        ptx::shared_address(shared.query_columns) +
        static_cast<std::uint32_t>(warpgroup) * kRowsPerWarpgroup * kStepBytes);
    for (int step = 0; step < head.extra_steps; ++step) {
      ptx::wgmma_m64n128k32_f16_ss(
          scores, ptx::advance_descriptor(queries, step * kRowsPerBlock * kStepBytes),
          ptx::advance_descriptor(keys, step * Shared::kColumnTile), true);
    }
  }

  /// Issues partial (+)= P V of the next tile.
  template <bool kAccumulate>
  __device__ __forceinline__ void issue_values() {
    ptx::mbarrier_wait(ptx::shared_address(&shared.value_full[value_ring.stage]),
                       value_ring.parity);
    const std::uint64_t values = ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(
        ptx::shared_address(shared.values[value_ring.stage].codes));
    if constexpr (!kAccumulate) ptx::renew_registers(partial);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
      const std::uint32_t a[4] = {probabilities[4 * step], probabilities[4 * step + 1],
                                  probabilities[4 * step + 2], probabilities[4 * step + 3]};
      ptx::wgmma_m64n136k32_f32_rs(partial, a, ptx::advance_descriptor(values, step * kStepBytes),
                                   kAccumulate || step != 0);
    }
    ptx::wgmma_commit_group();
    value_ring.advance();
  }

  // ---- per tile -------------------------------------------------------------------------------

  /// accumulator = growth * accumulator + partial. Repair tiles (`raises` false) stay outside the
  /// row sums.
  __device__ __forceinline__ void promote(bool raises) {
#pragma unroll
    for (int i = 0; i < kAccumulatorRegisters; ++i) {
      if (i > kLowSum && i != kHighSum) continue;
      if (i >= kLowSum && !raises) continue;
      const float factor = i % 4 < 2 ? growth.low : growth.high;
      accumulator[i] = __fmaf_rn(accumulator[i], factor, partial[i]);
    }
    growth = {};
  }

  /// Turns the scores of step `step` into codes. `kOpen`: `partial` holds a tile that has not been
  /// promoted yet.
  template <bool kOpen>
  __device__ __forceinline__ void softmax(Scores& scores, int step, bool raises) {
    if (static_cast<unsigned>(step - mask_begin) < static_cast<unsigned>(mask_count)) {
      mask(scores, step);
    }
    if (raises) {
      const std::uint32_t new_max = block_max<kConfig.integer_max>(scores, rows);
      if (__any_sync(0xFFFF'FFFFu, new_max != rows.row_max)) {
        const RowPair::Factors factors = rows.raise(new_max, CodeRule(head));
        growth.low *= factors.low;
        growth.high *= factors.high;
        if constexpr (kOpen) {
#pragma unroll
          for (int i = 0; i < kAccumulatorRegisters; ++i) {
            partial[i] *= i % 4 < 2 ? factors.low : factors.high;
          }
        }
      }
    }
    encode(scores, probabilities, rows, head);
    ptx::pin_registers(probabilities);  // computed before the fence of the product that reads them
  }

  /// Hides the keys of step `step` that the rows of this thread do not see.
  __device__ __forceinline__ void mask(Scores& scores, int step) {
    const schedule::Problem& problem = parameters.problem;
    // Without a causal mask only the last block is incomplete; with one, blocks come in descending
    // order.
    const std::int64_t block =
        problem.mask == Mask::none ? problem.key_blocks() - 1 : causal_blocks() - 1 - step;
    const auto limit = [&](std::int64_t row) {
      const std::int64_t visible =
          schedule::visible_keys(problem, row) - block * numerics::kKeyBlock;
      return static_cast<int>(visible < numerics::kKeyBlock ? visible : numerics::kKeyBlock);
    };
    mask_scores(scores, limit(first_row()), limit(first_row() + 8));
  }

  // ---- ping-pong ------------------------------------------------------------------------------

  static constexpr int kTurnBarrier = 1;  // named barriers 1 and 2: turn of warpgroup 0 and 1

  __device__ void wait_turn() const {
    if constexpr (kConfig.ping_pong) {
      ptx::bar_sync(kTurnBarrier + warpgroup, kConsumerWarpgroups * kWarpgroupThreads);
    }
  }
  __device__ void pass_turn() const {
    if constexpr (kConfig.ping_pong) {
      ptx::bar_arrive(kTurnBarrier + 1 - warpgroup, kConsumerWarpgroups * kWarpgroupThreads);
    }
  }

  // ---- the scan -------------------------------------------------------------------------------

  /// One step of the pipeline: P V of tile `step`, Q K of tile `step` + 2 into the buffer that tile
  /// `step` has left, codes of tile `step` + 1. Odd steps close a pair of tiles and promote it.
  template <bool kMoreScores, bool kClosesPair>
  __device__ __forceinline__ void advance(Scores& free_scores, Scores& next_scores, int step,
                                          bool raises) {
    wait_turn();
    issue_values<kClosesPair>();
    if constexpr (kMoreScores) {
      issue_scores(free_scores);
      key_ring.advance();
    }
    pass_turn();
    ptx::wgmma_wait_group<kMoreScores ? 1 : 0>();
    ptx::pin_registers(partial);
    ptx::pin_registers(next_scores);
    release_values();
    release_keys<kMoreScores ? 2 : 1>();
    if constexpr (kClosesPair) promote(raises);
    softmax<!kClosesPair>(next_scores, step + 1, raises);
  }

  template <bool kClosesPair>
  __device__ __forceinline__ void finish(bool raises) {
    wait_turn();
    issue_values<kClosesPair>();
    pass_turn();
    ptx::wgmma_wait_group<0>();
    ptx::pin_registers(partial);
    release_values();
    promote(raises);
  }

  /// Tiles [begin, end) of the sequence, end > begin. Nothing is in flight before and after.
  /// `raises`: the tiles take part in the softmax. A repair row repeats the key of a token, so its
  /// score cannot exceed the maximum.
  __device__ __forceinline__ void scan(int begin, int end, bool raises) {
    // Both score buffers are always filled, so that one pipeline serves every length: a lone tile
    // is multiplied twice.
    const bool lone = end - begin == 1;
    wait_turn();
    issue_scores(scores_a);
    if (!lone) key_ring.advance();
    issue_scores(scores_b);
    key_ring.advance();
    pass_turn();
    ptx::wgmma_wait_group<1>();
    ptx::pin_registers(scores_a);
    if (!lone) release_keys<2>();
    softmax<false>(scores_a, begin, raises);
    int step = begin;
#pragma unroll 1
    for (; step + 3 < end; step += 2) {
      advance<true, false>(scores_a, scores_b, step, raises);
      advance<true, true>(scores_b, scores_a, step + 1, raises);
    }
    if (end - step == 3) {
      advance<true, false>(scores_a, scores_b, step, raises);
      advance<false, true>(scores_b, scores_a, step + 1, raises);
      finish<false>(raises);
    } else if (end - step == 2) {
      advance<false, false>(scores_a, scores_b, step, raises);
      finish<true>(raises);
    } else {
      finish<false>(raises);
      if (lone) release_keys<1>();
    }
  }
};

}  // namespace openvc::cuda::sm90
