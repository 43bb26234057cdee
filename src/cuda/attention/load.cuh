// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "cuda/attention/kernel_config.hpp"
#include "cuda/attention/parameters.cuh"
#include "cuda/attention/storage.cuh"
#include "cuda/attention/work.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_address.cuh"
#include "cuda/ptx/tma.cuh"
#include "schedule/ring_state.hpp"
#include "schedule/traversal.hpp"
#include "schedule/work_queue.hpp"

// The loading warps. One elected thread of each walks the same list of work as the consumer
// warpgroups and keeps its ring of stages full.
namespace openvc::cuda {

template <class Config>
struct Loader {
  static constexpr KernelConfig kConfig = Config::kValue;
  static constexpr TileShape kShape = Config::kShape;
  using Shared = TileStorage<Config>;
  static constexpr std::uint32_t kKeyOwner = 0;
  static constexpr std::uint32_t kValueOwner = kConfig.cluster_size - 1;
  static constexpr auto kAllBlocks = static_cast<std::uint16_t>((1 << kConfig.cluster_size) - 1);

  using KeyRing = schedule::RingState<kConfig.key_stages>;
  using ValueRing = schedule::RingState<kConfig.value_stages>;

  const Parameters& parameters;
  Shared& shared;
  schedule::ClusterCoord coord;

  // Each function fills its ring with the tiles of all work of the cluster, and returns where the
  // ring stands: the parity to wait with until the stage is empty.

  /// Q tiles and their residual columns, scales and means of V.
  __device__ std::uint32_t load_queries() const {
    std::uint32_t parity = 1;  // the first wait for an empty stage passes
    const std::uint32_t full = ptx::shared_address(&shared.query_full);
    for_each_work([&](const schedule::WorkTile& work) {
      const int steps = extra_steps(work.batch_head);
      const auto head = static_cast<int>(work.batch_head);
      const auto row = static_cast<int>(work.query_tile * kShape.query_rows);
      ptx::mbarrier_wait(ptx::shared_address(&shared.query_empty), parity);
      parity ^= 1;
      ptx::mbarrier_arrive_expect_tx(
          full, tile_bytes(shared.queries, steps, Shared::kQueryColumnTile) +
                    static_cast<std::uint32_t>(sizeof(typename Shared::ValueCode)));
      load_value_code(shared.value_codes[parity], work.batch_head, full);
      ptx::cp_async_bulk_tensor_3d(ptx::shared_address(shared.queries.codes), &parameters.query_map,
                                   full, 0, row, head);
      if constexpr (Shared::kWithColumns) {
        for_each_step(steps, head, [&](int step, int plane) {
          ptx::cp_async_bulk_tensor_3d(
              ptx::shared_address(shared.queries.columns + step * Shared::kQueryColumnTile),
              &parameters.query_columns_map, full, 0, row, plane);
        });
      }
    });
    return parity;
  }

  /// K tiles and their residual columns.
  __device__ KeyRing load_keys() const {
    KeyRing ring{.parity = 1};
    if (coord.rank != kKeyOwner) return ring;
    for_each_work([&](const schedule::WorkTile& work) {
      const int steps = extra_steps(work.batch_head);
      const auto head = static_cast<int>(work.batch_head);
      const schedule::TileSequence tiles =
          schedule::tile_sequence(parameters.problem_of(work.batch_head),
                                  work.query_tile * kShape.query_rows / numerics::kQueryBlock);
      for (int i = 0; i < tiles.count; ++i) {
        auto& stage = shared.keys[ring.stage];
        const std::uint32_t full = ptx::shared_address(&shared.key_full[ring.stage]);
        const int row = tiles.block(i) * numerics::kKeyBlock;
        ptx::mbarrier_wait(ptx::shared_address(&shared.key_empty[ring.stage]), ring.parity);
        expect(full, tile_bytes(stage, steps, Shared::kKeyColumnTile));
        copy(stage.codes, parameters.key_map, full, 0, row, head);
        if constexpr (Shared::kWithColumns) {
          for_each_step(steps, head, [&](int step, int plane) {
            copy(stage.columns + step * Shared::kKeyColumnTile, parameters.key_columns_map, full, 0,
                 row, plane);
          });
        }
        ring.advance();
      }
    });
    return ring;
  }

  __device__ ValueRing load_values() const {
    ValueRing ring{.parity = 1};
    if (coord.rank != kValueOwner) return ring;
    for_each_work([&](const schedule::WorkTile& work) {
      const auto head = static_cast<int>(work.batch_head);
      const schedule::TileSequence tiles =
          schedule::tile_sequence(parameters.problem_of(work.batch_head),
                                  work.query_tile * kShape.query_rows / numerics::kQueryBlock);
      for (int i = 0; i < tiles.count; ++i) {
        auto& stage = shared.values[ring.stage];
        const std::uint32_t full = ptx::shared_address(&shared.value_full[ring.stage]);
        const int row = tiles.block(i) * kShape.value_rows;
        ptx::mbarrier_wait(ptx::shared_address(&shared.value_empty[ring.stage]), ring.parity);
        expect(full, sizeof(stage.codes));
        copy(stage.codes, parameters.value_map, full, 0, row, head);
        ring.advance();
      }
    });
    return ring;
  }

  /// Waits until every stage has been given back.
  template <int kStages>
  __device__ static void wait_until_empty(std::uint64_t (&empty)[kStages],
                                          schedule::RingState<kStages> ring) {
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_wait(ptx::shared_address(&empty[ring.stage]), ring.parity);
      ring.advance();
    }
  }

 private:
  /// Calls visit(work) for every work item of this cluster.
  template <class Visit>
  __device__ void for_each_work(const Visit& visit) const {
    const schedule::WorkQueue queue(parameters.problem, kShape.query_rows, kConfig.cluster_size);
    for (std::int64_t i = coord.cluster; i < queue.count; i += coord.clusters) {
      const schedule::WorkTile work = queue.tile(i, coord.rank);
      if (has_queries<Config>(parameters, work, coord)) visit(work);
    }
  }

  [[nodiscard]] __device__ int extra_steps(std::int64_t batch_head) const {
    if constexpr (!Shared::kWithColumns) return 0;
    return parameters.head_rules[batch_head].extra_steps;
  }

  template <class Tile>
  __device__ static std::uint32_t tile_bytes(const Tile& tile, int steps, int column_tile) {
    return static_cast<std::uint32_t>(sizeof(tile.codes) + steps * column_tile);
  }

  /// Calls load(step, plane) for the residual columns of a head.
  template <class Load>
  __device__ void for_each_step(int steps, int head, const Load& load) const {
    const auto heads = static_cast<int>(parameters.problem.batch_heads());
    for (int step = 0; step < steps; ++step) load(step, step * heads + head);
  }

  /// Announces `bytes` on this stage's barrier in every block that will receive the tile.
  __device__ static void expect(std::uint32_t barrier, std::uint32_t bytes) {
    if constexpr (kConfig.cluster_size == 1) {
      ptx::mbarrier_arrive_expect_tx(barrier, bytes);
    } else {
#pragma unroll
      for (std::uint32_t rank = 0; rank < kConfig.cluster_size; ++rank) {
        ptx::mbarrier_arrive_expect_tx_cluster(ptx::mapa(barrier, rank), bytes);
      }
    }
  }

  __device__ static void copy(void* destination, const CUtensorMap& map, std::uint32_t barrier,
                              int x, int y, int z) {
    const std::uint32_t address = ptx::shared_address(destination);
    if constexpr (kConfig.cluster_size == 1) {
      ptx::cp_async_bulk_tensor_3d(address, &map, barrier, x, y, z);
    } else {
      ptx::cp_async_bulk_tensor_3d_multicast(address, &map, barrier, kAllBlocks, x, y, z);
    }
  }

  __device__ void load_value_code(typename Shared::ValueCode& code, std::int64_t batch_head,
                                  std::uint32_t barrier) const {
    const std::int64_t first = batch_head * numerics::kHeadDim;
    ptx::cp_async_bulk(ptx::shared_address(code.scales), parameters.value_scales + first,
                       sizeof(code.scales), barrier);
    ptx::cp_async_bulk(ptx::shared_address(code.means), parameters.value_means + first,
                       sizeof(code.means), barrier);
  }
};

}  // namespace openvc::cuda
