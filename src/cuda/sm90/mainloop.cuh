// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/fragment_softmax.cuh"
#include "cuda/attention/load.cuh"
#include "cuda/attention/storage.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/sm90/config.hpp"
#include "schedule/mask.hpp"
#include "schedule/ring_state.hpp"

// One consumer warpgroup: 64 query rows against all key blocks.
//
// Score products run two tiles ahead of the value products, in two score buffers A and B, so that
// the tensor core always has work queued while the warpgroup turns the tile between into codes:
//
//   issue    P(i) V(i)   Q K(i+2)
//   tensor   |-- PV i --|-- QK i+2 --|
//   warps               |  promote tile i, maximum and codes of tile i+1  |
//
// Every tile is a softmax of its own. Its value products go into `partial`, which is promoted:
// added to the binary32 accumulator by the weight of the tile. That also keeps sums in Hopper's FP8
// accumulator short, which has 14 bits and truncates.
namespace openvc::cuda::sm90 {

template <class Config>
using Storage = TileStorage<Config>;

inline constexpr int kAccumulatorRegisters = kValueRows / 2;

/// Whether a step of the pipeline issues score products: two tiles ahead there may be none.
enum class ScoreProducts { issue, none };

/// What the products of one work item read and write. Local to the main loop: nothing of it
/// outlives the products, and the compiler can see that.
struct Fragments {
  Scores scores_a;
  Scores scores_b;
  Probabilities probabilities;
  BlockPair block;  // the tile of `probabilities`
  float partial[kAccumulatorRegisters];
};

template <class Config>
struct Consumer {
  static constexpr KernelConfig kConfig = Config::kValue;
  using Shared = Storage<Config>;

  const Parameters& parameters;
  Shared& shared;
  int warpgroup;  // 0 or 1

  schedule::RingState<kConfig.key_stages> key_ring{};  // next tile to multiply
  schedule::RingState<kConfig.value_stages> value_ring{};
  std::uint32_t query_parity = 0;

  // Of the current work item. Few and small: every register counts in the main loop, and rare paths
  // recompute what they need.
  numerics::HeadRule head{};
  int query_tile = 0;  // in units of kRowsPerBlock
  // With a causal mask: keys of the first tile that the first row sees, if there are as many; each
  // further row sees one more, and each further tile begins a block of keys before.
  int causal_limit = 0;

  float accumulator[kAccumulatorRegisters];
  RowPair rows;

  [[nodiscard]] __device__ static int lane() {
    return static_cast<int>(threadIdx.x) % kWarpThreads;
  }
  [[nodiscard]] __device__ static int warp() {
    return static_cast<int>(threadIdx.x) / kWarpThreads % kWarpgroupWarps;
  }

  // ---- work items -----------------------------------------------------------------------------

  /// First row of this warpgroup.
  [[nodiscard]] __device__ std::int64_t tile_row() const {
    return std::int64_t{query_tile} * kRowsPerBlock + warpgroup * kRowsPerWarpgroup;
  }
  /// Row g of this thread's pair; the other is g + 8.
  [[nodiscard]] __device__ std::int64_t first_row() const {
    return tile_row() + 16 * warp() + lane() / 4;
  }
  [[nodiscard]] __device__ schedule::TileSequence tiles(const schedule::Problem& problem) const {
    constexpr int kTilesPerQueryBlock = numerics::kQueryBlock / kRowsPerBlock;
    return schedule::tile_sequence(problem, query_tile / kTilesPerQueryBlock);
  }

  __device__ __forceinline__ void begin_work(const numerics::HeadRule& head_rule,
                                             const schedule::WorkTile& work) {
    head = head_rule;
    query_tile = static_cast<int>(work.query_tile);
    rows = RowPair{};
#pragma unroll
    for (float& value : accumulator) value = 0.0f;
    if constexpr (kConfig.causal) {
      const schedule::Problem problem = parameters.problem_of(work.batch_head);
      const std::int64_t first_key = tiles(problem).traversal.block(0) * numerics::kKeyBlock;
      causal_limit = static_cast<int>(tile_row() + schedule::causal_start(problem) - first_key);
    }
    ptx::mbarrier_wait(ptx::shared_address(&shared.query_full), query_parity);
    query_parity ^= 1;
  }

  /// Code of V of the current work item.
  [[nodiscard]] __device__ const typename Shared::ValueCode& value_code() const {
    return shared.value_codes[query_parity ^ 1];
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
  __device__ void release_keys() const {
    constexpr std::uint32_t kStages = kConfig.key_stages;
    const std::uint32_t stage = key_ring.stage + (key_ring.stage < kAge ? kStages : 0) - kAge;
    release(shared.key_empty[stage], Loader<Config>::kKeyOwner);
  }

  __device__ void release_values() const {
    constexpr std::uint32_t kStages = kConfig.value_stages;
    const std::uint32_t stage = value_ring.stage + (value_ring.stage < 1 ? kStages : 0) - 1;
    release(shared.value_empty[stage], Loader<Config>::kValueOwner);
  }

  __device__ void release_query() const {
    if (lane() == 0) ptx::mbarrier_arrive(ptx::shared_address(&shared.query_empty));
  }

  // ---- products -------------------------------------------------------------------------------

  /// Issues scores = Q K^T of the tile at the head of the ring. The accumulator is binary16: what
  /// is small comes first, residual columns, then the axes from the weakest to the strongest, so
  /// that few sums are rounded at the size of the score.
  template <int kExtraSteps>
  __device__ __forceinline__ void issue_scores(Scores& scores) {
    auto& stage = shared.keys[key_ring.stage];
    ptx::mbarrier_wait(ptx::shared_address(&shared.key_full[key_ring.stage]), key_ring.parity);
    const std::uint64_t keys =
        ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(ptx::shared_address(stage.codes));
    const std::uint64_t queries = ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(
        ptx::shared_address(shared.queries.codes) +
        static_cast<std::uint32_t>(warpgroup) * kRowsPerWarpgroup * numerics::kHeadDim);
    ptx::warpgroup_undefined_operand(scores);
    ptx::wgmma_fence();
    if constexpr (kExtraSteps > 0) {
      const std::uint64_t key_columns =
          ptx::matrix_descriptor<ptx::Swizzle::bytes_32>(ptx::shared_address(stage.columns));
      const std::uint64_t query_columns = ptx::matrix_descriptor<ptx::Swizzle::bytes_32>(
          ptx::shared_address(shared.queries.columns) +
          static_cast<std::uint32_t>(warpgroup) * kRowsPerWarpgroup * kStepBytes);
#pragma unroll
      for (int step = 0; step < kExtraSteps; ++step) {
        ptx::wgmma_m64n128k32_f16_ss(
            scores, ptx::advance_descriptor(query_columns, step * Shared::kQueryColumnTile),
            ptx::advance_descriptor(key_columns, step * Shared::kKeyColumnTile), step != 0);
      }
    }
#pragma unroll
    for (int step = kScoreSteps - 1; step >= 0; --step) {
      ptx::wgmma_m64n128k32_f16_ss(scores, ptx::advance_descriptor(queries, step * kStepBytes),
                                   ptx::advance_descriptor(keys, step * kStepBytes),
                                   kExtraSteps > 0 || step != kScoreSteps - 1);
    }
    ptx::wgmma_commit_group();
  }

  /// Issues partial = P V of the next tile.
  __device__ __forceinline__ void issue_values(Fragments& f) {
    ptx::mbarrier_wait(ptx::shared_address(&shared.value_full[value_ring.stage]),
                       value_ring.parity);
    const std::uint64_t values = ptx::matrix_descriptor<ptx::Swizzle::bytes_128>(
        ptx::shared_address(shared.values[value_ring.stage].codes));
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
      ptx::wgmma_m64n136k32_f32_rs(f.partial, f.probabilities + 4 * step,
                                   ptx::advance_descriptor(values, step * kStepBytes), step != 0);
    }
    ptx::wgmma_commit_group();
    value_ring.advance();
  }

  // ---- per tile -------------------------------------------------------------------------------

  /// accumulator += weight of the tile * partial.
  __device__ __forceinline__ void promote(const Fragments& f) {
#pragma unroll
    for (int i = 0; i < kAccumulatorRegisters; ++i) {
      const float weight = i % 4 < 2 ? f.block.weight.low : f.block.weight.high;
      accumulator[i] = __fmaf_rn(f.partial[i], weight, accumulator[i]);
    }
  }

  /// Turns the scores of step `step` into codes. All tiles before it have been promoted.
  template <ExpCastPath kPath>
  __device__ __forceinline__ void softmax(Fragments& f, Scores& scores, int step) {
    if constexpr (kConfig.causal) {
      const int limit = causal_limit + step * numerics::kKeyBlock;
      if (limit < numerics::kKeyBlock) mask(scores, limit);
    }
    begin_block<kPath>(f.block, rows, scores, head,
                       [&](const RowScale& rescale) { scale_rows(accumulator, rescale); });
    exp_cast<kPath>(scores, f.probabilities, f.block.top, head);
    // Computed before the fence of the product that reads them.
    ptx::warpgroup_fence_operand(f.probabilities);
  }

  /// Hides the keys of a tile that the rows of this thread do not see; the first row sees `limit`.
  __device__ __forceinline__ void mask(Scores& scores, int limit) const {
    limit += 16 * warp() + lane() / 4;
    mask_scores(scores, limit, limit + 8);
  }

  // ---- main loop ------------------------------------------------------------------------------

  /// One step of the pipeline: P V of tile `step`, Q K of tile `step` + 2 into the buffer that tile
  /// `step` has left, codes of tile `step` + 1.
  template <ExpCastPath kPath, int kExtraSteps, ScoreProducts kProducts>
  __device__ __forceinline__ void advance(Fragments& f, Scores& free_scores, Scores& next_scores,
                                          int step) {
    constexpr bool kMoreScores = kProducts == ScoreProducts::issue;
    issue_values(f);
    if constexpr (kMoreScores) {
      issue_scores<kExtraSteps>(free_scores);
      key_ring.advance();
    }
    ptx::wgmma_wait_group<kMoreScores ? 1 : 0>();
    ptx::warpgroup_fence_operand(f.partial);
    ptx::warpgroup_fence_operand(next_scores);
    release_values();
    release_keys<kMoreScores ? 2 : 1>();
    if constexpr (!kMoreScores) release_query();  // the last product of Q has ended
    promote(f);
    softmax<kPath>(f, next_scores, step + 1);
  }

  /// All `count` >= 1 tiles. Nothing is in flight before and after.
  template <ExpCastPath kPath, int kExtraSteps>
  __device__ __forceinline__ void mainloop(int count) {
    constexpr auto kIssue = ScoreProducts::issue;
    constexpr auto kNone = ScoreProducts::none;
    // Both score buffers are always filled, so that one pipeline serves every length: a lone tile
    // is multiplied twice.
    Fragments f;
    ptx::warpgroup_undefined_operand(f.partial);
    const bool lone = count == 1;
    issue_scores<kExtraSteps>(f.scores_a);
    if (!lone) key_ring.advance();
    issue_scores<kExtraSteps>(f.scores_b);
    key_ring.advance();
    ptx::wgmma_wait_group<1>();
    ptx::warpgroup_fence_operand(f.scores_a);
    if (!lone) release_keys<2>();
    softmax<kPath>(f, f.scores_a, 0);

    int step = 0;
#pragma unroll 1
    for (; step + 3 < count; step += 2) {
      advance<kPath, kExtraSteps, kIssue>(f, f.scores_a, f.scores_b, step);
      advance<kPath, kExtraSteps, kIssue>(f, f.scores_b, f.scores_a, step + 1);
    }
    // One to three tiles are left.
    if (count - step == 3) {
      advance<kPath, kExtraSteps, kIssue>(f, f.scores_a, f.scores_b, step);
      advance<kPath, kExtraSteps, kNone>(f, f.scores_b, f.scores_a, step + 1);
    } else if (count - step == 2) {
      advance<kPath, kExtraSteps, kNone>(f, f.scores_a, f.scores_b, step);
    } else {
      ptx::wgmma_wait_group<0>();  // the second product of a lone tile
      ptx::warpgroup_fence_operand(f.scores_b);
      release_query();
    }
    issue_values(f);
    ptx::wgmma_wait_group<0>();
    ptx::warpgroup_fence_operand(f.partial);
    release_values();
    if (lone) release_keys<1>();
    promote(f);
  }

  /// The main loop that is compiled for the rule of this head, over so many tiles.
  __device__ __forceinline__ void run_mainloop(int count) {
    if (count == 0) {
      __syncwarp();  // all lanes have seen the Q tile that one of them gives back
      return release_query();
    }
    if constexpr (kConfig.max_extra_steps >= 4) {
      if (head.extra_steps == 4) return run_mainloop_of_steps<4>(count);
    }
    if constexpr (kConfig.max_extra_steps >= 2) {
      if (head.extra_steps == 2) return run_mainloop_of_steps<2>(count);
      if (head.extra_steps == 1) return run_mainloop_of_steps<1>(count);
    }
    run_mainloop_of_steps<0>(count);
  }

  template <int kExtraSteps>
  __device__ __forceinline__ void run_mainloop_of_steps(int count) {
    if (head.wide()) return mainloop<ExpCastPath::wide, kExtraSteps>(count);
    mainloop<ExpCastPath::narrow, kExtraSteps>(count);
  }
};

}  // namespace openvc::cuda::sm90
