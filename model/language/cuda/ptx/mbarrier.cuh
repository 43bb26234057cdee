// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "machine/barriers.hpp"
#include "machine/machine.hpp"

namespace openvc::cuda::ptx {

inline void mbarrier_init(std::uint32_t barrier, std::uint32_t arrivals) {
  model::init_barrier(barrier, arrivals);
}
inline void fence_mbarrier_init() { model::fence_barriers(); }

inline void mbarrier_arrive(std::uint32_t barrier) {
  model::arrive(barrier, 0, model::Scope::block, "mbarrier.arrive");
}
inline std::uint32_t mapa(std::uint32_t address, std::uint32_t cluster_rank) {
  return model::map_address(address, cluster_rank);
}
inline void mbarrier_arrive_cluster(std::uint32_t remote_barrier) {
  model::arrive(remote_barrier, 0, model::Scope::cluster, "mbarrier.arrive.cluster");
}
inline void mbarrier_arrive_expect_tx(std::uint32_t barrier, std::uint32_t bytes) {
  model::arrive(barrier, bytes, model::Scope::block, "mbarrier.arrive.expect_tx");
}
inline void mbarrier_arrive_expect_tx_cluster(std::uint32_t remote_barrier, std::uint32_t bytes) {
  model::arrive(remote_barrier, bytes, model::Scope::cluster, "mbarrier.arrive.expect_tx.cluster");
}

inline bool mbarrier_try_wait_parity(std::uint32_t barrier, std::uint32_t parity) {
  return model::try_wait(barrier, parity);
}
inline void mbarrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  model::wait_for_phase(barrier, parity);
}

}  // namespace openvc::cuda::ptx
