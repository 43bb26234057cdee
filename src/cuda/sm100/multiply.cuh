// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/parameters.cuh"
#include "cuda/attention/work.cuh"
#include "cuda/ptx/instruction_descriptor.cuh"
#include "cuda/ptx/matrix_descriptor.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/tcgen05.cuh"
#include "cuda/ptx/tensor_memory.cuh"
#include "cuda/sm100/config.hpp"
#include "cuda/sm100/storage.cuh"
#include "schedule/ring_state.hpp"
#include "schedule/traversal.hpp"
#include "schedule/work_queue.hpp"

// The thread that issues all products of a block. Those of the two query tiles, A and B, take
// turns, and score products run a key block ahead:
//
//   tensor core   | P V of A(i) | Q K of A(i+1) | P V of B(i) | Q K of B(i+1) |
//   consumers A                 | sums (i)      | scores (i+1) to codes       |
//
// P V begins with the first half of the keys, while codes of the others are made.
//
// A query tile has a score buffer and a probability buffer of its own, so that codes of a block may
// still be multiplied while the next scores are made.
namespace openvc::cuda::sm100 {

template <class Config>
struct Multiplier {
  static constexpr KernelConfig kConfig = Config::kValue;
  static_assert(kConfig.cluster_size == 1);
  using Shared = Storage<Config>;

  const Parameters& parameters;
  Shared& shared;
  schedule::ClusterCoord coord;
  std::uint32_t columns;  // of tensor memory: address of the first

  schedule::RingState<kConfig.key_stages> key_ring{};
  schedule::RingState<kConfig.value_stages> value_ring{};
  std::uint32_t query_parity = 0;
  std::uint32_t probability_parity[kQueryTiles * tensor_memory::kProbabilityParts] = {0, 0, 0, 0};
  // Nobody has to empty the sums before their first use. Those of B wait for A's reader, those of A
  // for B's, but for the very first.
  std::uint32_t partial_empty_parity[kQueryTiles * tensor_memory::kPartialParts] = {1, 1, 0, 0};

  /// Products of every work item of the cluster.
  __device__ void run() {
    const schedule::WorkQueue queue(parameters.problem, kRowsPerBlock, kConfig.cluster_size);
    for (std::int64_t i = coord.cluster; i < queue.count; i += coord.clusters) {
      const schedule::WorkTile work = queue.tile(i, coord.rank);
      if (!has_queries<Config>(parameters, work, coord)) continue;
      const int count =
          schedule::tile_sequence(parameters.problem_of(work.batch_head),
                                  work.query_tile * kRowsPerBlock / numerics::kQueryBlock)
              .count;
      ptx::mbarrier_wait(ptx::shared_address(&shared.query_full), query_parity);
      query_parity ^= 1;
      multiply(count, parameters.head_rules[work.batch_head].extra_steps);
    }
  }

 private:
  static constexpr std::uint32_t kScoreProduct = ptx::instruction_descriptor(
      ptx::AccumulatorType::binary16, kRowsPerTile, numerics::kKeyBlock);

  __device__ void multiply(int count, int extra_steps) {
    if (count == 0) return ptx::mbarrier_arrive(ptx::shared_address(&shared.query_empty));
    issue_scores(extra_steps, 0, count == 1);
    issue_scores(extra_steps, 1, count == 1);
    for (int step = 0; step < count; ++step) {
      const bool more = step + 1 < count;
      const bool last = step + 2 == count;
#pragma unroll
      for (int tile = 0; tile < kQueryTiles; ++tile) {
        issue_values(tile);
        if (more) issue_scores(extra_steps, tile, last);
      }
    }
  }

  /// Arrives when all products issued so far are done.
  __device__ static void commit(std::uint64_t& barrier) {
    ptx::tcgen05_commit(ptx::shared_address(&barrier));
  }

  /// scores = Q K^T of a query tile and the key block at the head of the ring. Those of the block
  /// before have been read: their codes were waited for. The accumulator is
  /// binary16: what is small comes first, residual columns, then the axes from the weakest to the
  /// strongest, so that few sums are rounded at the size of the score.
  __device__ void issue_scores(int extra_steps, int tile, bool last_of_query) {
    auto& stage = shared.keys[key_ring.stage];
    if (tile == 0) {
      ptx::mbarrier_wait(ptx::shared_address(&shared.key_full[key_ring.stage]), key_ring.parity);
    }
    const std::uint32_t scores =
        columns +
        static_cast<std::uint32_t>(tensor_memory::kScores + tile * tensor_memory::kScoreColumns);
    bool accumulate = false;
    const std::uint64_t key_columns = columns_descriptor(stage, 0);
    const std::uint64_t query_columns = columns_descriptor(shared.queries, tile);
    for (int step = 0; step < extra_steps; ++step) {
      ptx::tcgen05_mma_f8f6f4_ss(
          scores, ptx::advance_descriptor(query_columns, step * Shared::kQueryColumnTile),
          ptx::advance_descriptor(key_columns, step * Shared::kKeyColumnTile), kScoreProduct,
          accumulate);
      accumulate = true;
    }
    const std::uint64_t keys =
        ptx::tcgen05_matrix_descriptor<ptx::Swizzle::bytes_128>(ptx::shared_address(stage.codes));
    const std::uint64_t queries = ptx::tcgen05_matrix_descriptor<ptx::Swizzle::bytes_128>(
        ptx::shared_address(shared.queries.codes) +
        static_cast<std::uint32_t>(tile) * kRowsPerTile * numerics::kHeadDim);
#pragma unroll
    for (int step = kScoreSteps - 1; step >= 0; --step) {
      ptx::tcgen05_mma_f8f6f4_ss(scores, ptx::advance_descriptor(queries, step * kStepBytes),
                                 ptx::advance_descriptor(keys, step * kStepBytes), kScoreProduct,
                                 accumulate);
      accumulate = true;
    }
    commit(shared.score_full[tile]);
    if (tile + 1 < kQueryTiles) return;
    commit(shared.key_empty[key_ring.stage]);
    key_ring.advance();
    if (last_of_query) commit(shared.query_empty);
  }

  /// Descriptor of the residual columns of a tile, of its row tile `tile`. Not used without them.
  template <class Tile>
  __device__ static std::uint64_t columns_descriptor(const Tile& operand, int tile) {
    if constexpr (Shared::kWithColumns) {
      return ptx::tcgen05_matrix_descriptor<ptx::Swizzle::bytes_32>(
          ptx::shared_address(operand.columns) +
          static_cast<std::uint32_t>(tile) * kRowsPerTile * kStepBytes);
    }
    return 0;
  }

  /// partial = P V of a query tile and the value block at the head of the ring.
  __device__ void issue_values(int tile) {
    if (tile == 0) {
      ptx::mbarrier_wait(ptx::shared_address(&shared.value_full[value_ring.stage]),
                         value_ring.parity);
    }
    const std::uint32_t probabilities =
        columns + static_cast<std::uint32_t>(tensor_memory::kProbabilities +
                                             tile * tensor_memory::kProbabilityColumns);
    const std::uint64_t values = ptx::tcgen05_matrix_descriptor<ptx::Swizzle::bytes_128>(
        ptx::shared_address(shared.values[value_ring.stage].codes));
#pragma unroll
    for (int part = 0; part < tensor_memory::kPartialParts; ++part) {
      issue_part(tile, part, probabilities, values);
    }
    if (tile + 1 < kQueryTiles) return;
    commit(shared.value_empty[value_ring.stage]);
    value_ring.advance();
  }

  /// Some columns of partial.
  __device__ void issue_part(int tile, int part, std::uint32_t probabilities,
                             std::uint64_t values) {
    const auto first = static_cast<std::uint32_t>(tensor_memory::part_begin(part));
    const int width = tensor_memory::part_begin(part + 1) - static_cast<int>(first);
    const int other = (tile + 1) % kQueryTiles;  // had the sums before these in the same columns
    wait(shared.partial_empty[other * tensor_memory::kPartialParts + part],
         partial_empty_parity[tile * tensor_memory::kPartialParts + part]);
    const std::uint32_t product =
        ptx::instruction_descriptor(ptx::AccumulatorType::binary32, kRowsPerTile, width);
    const std::uint64_t rows = ptx::advance_descriptor(values, first * numerics::kKeyBlock);
#pragma unroll
    for (int step = 0; step < kValueSteps; ++step) {
      if (part == 0 && step % tensor_memory::kStepsPerPart == 0) {
        const int half =
            tile * tensor_memory::kProbabilityParts + step / tensor_memory::kStepsPerPart;
        wait(shared.probability_full[half], probability_parity[half]);
      }
      ptx::tcgen05_mma_f8f6f4_ts(
          columns + tensor_memory::kPartial + first,
          probabilities + static_cast<std::uint32_t>(step) * tensor_memory::kStepColumns,
          ptx::advance_descriptor(rows, step * kStepBytes), product, step != 0);
    }
    commit(shared.partial_full[tile * tensor_memory::kPartialParts + part]);
  }

  /// Waits for the consumers to have used, or filled, a buffer in tensor memory.
  __device__ static void wait(std::uint64_t& barrier, std::uint32_t& parity) {
    ptx::mbarrier_wait(ptx::shared_address(&barrier), parity);
    parity ^= 1;
    ptx::tcgen05_fence_after_thread_sync();
  }
};

}  // namespace openvc::cuda::sm100
