// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include "machine/engines.hpp"
#include "machine/machine.hpp"

namespace openvc::cuda::ptx {

inline void barrier_cluster_arrive() { model::arrive_at_cluster_barrier(); }
inline void barrier_cluster_wait() { model::wait_at_cluster_barrier(); }
inline std::uint32_t cluster_ctarank() { return model::cluster_rank(); }

inline void fence_proxy_async_shared() { model::fence_proxy(); }

template <int kRegisters>
void setmaxnreg_inc() {
  model::set_registers(kRegisters, true);
}
template <int kRegisters>
void setmaxnreg_dec() {
  model::set_registers(kRegisters, false);
}

/// Which lane is elected is the machine's choice: here the last.
inline bool elect_sync() {
  model::execute_aligned("elect.sync");
  return model::lane() == model::kWarpLanes - 1;
}

}  // namespace openvc::cuda::ptx
