// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/attention/fragment_softmax.cuh"
#include "cuda/attention/parameters.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/sm89/config.hpp"
#include "cuda/sm89/load.cuh"
#include "cuda/sm89/multiply.cuh"
#include "cuda/sm89/storage.cuh"
#include "schedule/mask.hpp"
#include "schedule/ring_state.hpp"
#include "schedule/traversal.hpp"
#include "schedule/work_queue.hpp"

// One warp: 16 query rows against all key blocks, one block after the other:
//
//   copies   V(i)                 K(i+1)
//   warp     Q K(i)  codes of i   P V(i)  promote tile i
//
// Two warps share a tensor core, and one multiplies while the other turns scores into codes: rings
// of two stages let them be half a tile apart.
//
// Every tile is a softmax of its own. Its value products go into sums of their own, which are
// promoted: added to the binary32 accumulator by the weight of the tile. That also keeps sums in
// the FP8 accumulator short, which has fewer bits than binary32.
namespace openvc::cuda::sm89 {

template <class Config>
struct Consumer {
  static constexpr KernelConfig kConfig = Config::kValue;
  static constexpr bool kWithColumns = Storage<Config>::kWithColumns;

  const Parameters& parameters;
  Storage<Config>& shared;
  int warp;

  // Next tile to multiply, which is also the next to copy.
  schedule::RingState<kConfig.key_stages> key_ring{};
  schedule::RingState<kConfig.value_stages> value_ring{};

  // Of the current work item.
  numerics::HeadRule head{};
  schedule::WorkTile work{};
  // With a causal mask: keys of the first tile that the first row sees, if there are as many; each
  // further row sees one more, and each further tile begins a block of keys before.
  int causal_limit = 0;

  Operand queries[kScoreSteps];
  Operand query_columns[kWithColumns ? kConfig.max_extra_steps : 1];
  Sums accumulator;
  RowPair rows;

  [[nodiscard]] __device__ static int lane() {
    return static_cast<int>(threadIdx.x) % kWarpThreads;
  }

  // ---- work items -----------------------------------------------------------------------------

  /// First row of this warp.
  [[nodiscard]] __device__ std::int64_t tile_row() const {
    return work.query_tile * kRowsPerBlock + warp * kRowsPerWarp;
  }
  /// Row g of this thread's pair; the other is g + 8.
  [[nodiscard]] __device__ std::int64_t first_row() const { return tile_row() + lane() / 4; }
  [[nodiscard]] __device__ schedule::TileSequence tiles(const schedule::Problem& problem) const {
    return schedule::tile_sequence(problem,
                                   work.query_tile * kRowsPerBlock / numerics::kQueryBlock);
  }

  /// Code of V of the current work item.
  struct ValueCode {
    const float* scales;
    const float* means;
  };
  [[nodiscard]] __device__ ValueCode value_code() const {
    const std::int64_t first = work.batch_head * numerics::kHeadDim;
    return {parameters.value_scales + first, parameters.value_means + first};
  }

  __device__ __forceinline__ void begin_work(const schedule::WorkTile& next) {
    work = next;
    head = parameters.head_rules[work.batch_head];
    rows = RowPair{};
#pragma unroll
    for (float& value : accumulator) value = 0.0f;
    if constexpr (kConfig.causal) {
      const schedule::Problem problem = parameters.problem_of(work.batch_head);
      const std::int64_t first_key = tiles(problem).traversal.block(0) * numerics::kKeyBlock;
      causal_limit = static_cast<int>(tile_row() + schedule::causal_start(problem) - first_key);
    }
    load_queries();
  }

  /// Q stays in registers while the keys pass.
  __device__ __forceinline__ void load_queries() {
    const schedule::PreparedLayout& layout = parameters.layout;
    const std::byte* codes = parameters.prepared + layout.query_at(work.batch_head, first_row());
#pragma unroll
    for (int step = 0; step < kScoreSteps; ++step) {
      load_operand<numerics::kHeadDim>(queries[step], codes + step * kStepBytes);
    }
    if constexpr (kWithColumns) {
#pragma unroll
      for (int step = 0; step < kConfig.max_extra_steps; ++step) {
        if (step >= head.extra_steps) break;
        load_operand<kStepBytes>(
            query_columns[step],
            parameters.prepared + layout.query_columns_at(step, work.batch_head, first_row()));
      }
    }
  }

  /// The A operand of a k-step: rows g and g + 8, of each the bytes 4 t .. 4 t + 3 and those 16
  /// further; `row` is row g.
  template <int kRowBytes>
  __device__ __forceinline__ static void load_operand(Operand& a, const std::byte* row) {
    const auto* low = reinterpret_cast<const std::uint32_t*>(row) + lane() % 4;
    const auto* high = low + 8 * kRowBytes / sizeof(*low);
    a[0] = low[0];
    a[1] = high[0];
    a[2] = low[4];
    a[3] = high[4];
  }

  // ---- per tile -------------------------------------------------------------------------------

  /// One arrival per warp, when all lanes have read the tile.
  __device__ __forceinline__ static void release(std::uint64_t& barrier) {
    __syncwarp();
    if (lane() == 0) ptx::mbarrier_arrive(ptx::shared_address(&barrier));
  }

  /// Scores of the next tile. The accumulator is binary16: what is small comes first, residual
  /// columns, then the axes from the weakest to the strongest, so that few sums are rounded at the
  /// size of the score.
  template <int kExtraSteps>
  __device__ __forceinline__ void multiply_keys(Scores& scores) {
    const std::uint32_t stage = key_ring.stage;
    ptx::mbarrier_wait(ptx::shared_address(&shared.key_full[stage]), key_ring.parity);
#pragma unroll
    for (std::uint32_t& pair : scores) pair = 0;
#pragma unroll
    for (int step = 0; step < kExtraSteps; ++step) {
      const TileReader<kStepBytes> columns(shared.columns(stage, step).codes);
      multiply_scores(scores, query_columns[step], columns, 0);
    }
    const TileReader<numerics::kHeadDim> keys(shared.keys[stage].codes);
#pragma unroll
    for (int step = kScoreSteps - 1; step >= 0; --step) {
      multiply_scores(scores, queries[step], keys, step);
    }
    release(shared.key_empty[stage]);
    key_ring.advance();
  }

  /// Turns the scores of step `step` into codes.
  template <ExpCastPath kPath>
  __device__ __forceinline__ void softmax(BlockPair& block, Scores& scores,
                                          Probabilities& probabilities, int step) {
    if constexpr (kConfig.causal) {
      const int limit = causal_limit + step * numerics::kKeyBlock;
      if (limit < numerics::kKeyBlock) {
        mask_scores(scores, limit + lane() / 4, limit + lane() / 4 + 8);
      }
    }
    begin_block<kPath>(block, rows, scores, head,
                       [&](const RowScale& rescale) { scale_rows(accumulator, rescale); });
    exp_cast<kPath>(scores, probabilities, block.top, head);
  }

  /// accumulator += weight of the tile * P V.
  __device__ __forceinline__ void add_values(const BlockPair& block,
                                             const Probabilities& probabilities) {
    const std::uint32_t stage = value_ring.stage;
    ptx::mbarrier_wait(ptx::shared_address(&shared.value_full[stage]), value_ring.parity);
    Sums sums;
    multiply_values(sums, probabilities, shared.values[stage].codes);
    release(shared.value_empty[stage]);
    value_ring.advance();
#pragma unroll
    for (int i = 0; i < kAccumulatorRegisters; ++i) {
      const float weight = i % 4 < 2 ? block.weight.low : block.weight.high;
      accumulator[i] = __fmaf_rn(sums[i], weight, accumulator[i]);
    }
  }

  // ---- main loop ------------------------------------------------------------------------------

  /// All tiles. Nothing is in flight before and after.
  template <ExpCastPath kPath, int kExtraSteps>
  __device__ __forceinline__ void mainloop(const schedule::TileSequence& sequence) {
    const Loader<Config> loader{parameters, shared};
    if (sequence.count > 0) {
      loader.load_keys(key_ring, work.batch_head, sequence.block(0), kExtraSteps);
    }
#pragma unroll 1
    for (int step = 0; step < sequence.count; ++step) {
      loader.load_values(value_ring, work.batch_head, sequence.block(step));
      Scores scores;
      Probabilities probabilities;
      BlockPair block;
      multiply_keys<kExtraSteps>(scores);
      softmax<kPath>(block, scores, probabilities, step);
      if (step + 1 < sequence.count) {
        loader.load_keys(key_ring, work.batch_head, sequence.block(step + 1), kExtraSteps);
      }
      add_values(block, probabilities);
    }
  }

  /// The main loop that is compiled for the rule of this head.
  __device__ __forceinline__ void run_mainloop(const schedule::TileSequence& sequence) {
    if constexpr (kConfig.max_extra_steps >= 4) {
      if (head.extra_steps == 4) return run_mainloop_of_steps<4>(sequence);
    }
    if constexpr (kConfig.max_extra_steps >= 2) {
      if (head.extra_steps == 2) return run_mainloop_of_steps<2>(sequence);
      if (head.extra_steps == 1) return run_mainloop_of_steps<1>(sequence);
    }
    run_mainloop_of_steps<0>(sequence);
  }

  template <int kExtraSteps>
  __device__ __forceinline__ void run_mainloop_of_steps(const schedule::TileSequence& sequence) {
    if (head.wide()) return mainloop<ExpCastPath::wide, kExtraSteps>(sequence);
    mainloop<ExpCastPath::narrow, kExtraSteps>(sequence);
  }
};

}  // namespace openvc::cuda::sm89
