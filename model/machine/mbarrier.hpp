// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "machine/barriers.hpp"
#include "machine/clock.hpp"
#include "machine/recorder.hpp"

namespace openvc::model {

/// An mbarrier object. A phase completes when nothing is pending and all bytes have come.
struct Barrier {
  std::uint32_t arrivals = 1;  // of a phase
  std::uint32_t pending = 1;
  std::int64_t bytes = 0;         // expected and not copied yet; below 0 where copies come first
  std::uint64_t phase = 0;        // that have completed
  std::vector<unsigned> waiting;  // threads of the cluster
  std::vector<unsigned> woken;    // of those, for the last phase; they have not looked yet

  // What came before, for those who have waited.
  Party party = 0;  // the barrier itself: its phases
  Clock arrived{};
  Clock completed{};
  Clock from_peers{};     // arrivals of other blocks
  Party initialiser = 0;  // the warp
  std::uint64_t initialised = 0;
  bool fenced = false;  // fence.mbarrier_init has followed

  /// Whether the phase before the current one has this parity.
  [[nodiscard]] bool has_completed(std::uint32_t parity) const { return phase % 2 != parity; }
  [[nodiscard]] std::string describe() const;
};

/// A barrier by its address.
struct BarrierPlace {
  unsigned rank;  // of its block
  std::uint32_t offset;
};
/// Throws if the warp that runs may find a barrier before its initialisation.
void check_initialised(const BarrierPlace& place, Scope scope, const char* instruction);
BarrierPlace barrier_place(std::uint32_t address, Scope scope, const char* instruction);

/// As a recorder knows it.
RecordedBarrier recorded(const BarrierPlace& place);

/// Counts bytes that a copy has brought. Throws if there is no such barrier or nobody expected
/// them.
void complete_bytes(const BarrierPlace& place, std::uint32_t bytes, const char* what,
                    unsigned issuer);

/// An arrival that an engine makes: what a clock says has happened before it. `from` is the party
/// whose deed it is, for barriers of other blocks.
struct EngineArrival {
  const char* what;
  unsigned issuer;  // thread of the cluster
  Clock before;
  Party from;
};
void arrive_by_engine(const BarrierPlace& place, const EngineArrival& arrival);

}  // namespace openvc::model
