// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

// mbarrier objects, by their address in the window of shared memory. Where a block of the cluster
// may be named, the address may come from map_address().
namespace openvc::model {

enum class Scope { block, cluster };

void init_barrier(std::uint32_t barrier, std::uint32_t arrivals);

/// fence.mbarrier_init: what the thread has initialised is seen by the cluster and by TMA.
void fence_barriers();

/// Expects `bytes` of copies in the current phase, then arrives.
void arrive(std::uint32_t barrier, std::uint32_t bytes, Scope scope, const char* instruction);

/// cp.async.mbarrier.arrive.noinc: arrives once the copies that the thread has begun, and that
/// nobody tracks yet, are done.
void arrive_behind_copies(std::uint32_t barrier);

/// Whether the phase of this parity has completed. May suspend the thread for a while.
[[nodiscard]] bool try_wait(std::uint32_t barrier, std::uint32_t parity);
/// Returns when it has.
void wait_for_phase(std::uint32_t barrier, std::uint32_t parity);

}  // namespace openvc::model
