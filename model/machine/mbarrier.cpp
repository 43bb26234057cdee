// SPDX-License-Identifier: BSD-3-Clause
#include "machine/mbarrier.hpp"

#include <cstring>

#include "machine/cluster.hpp"
#include "machine/mutation.hpp"
#include "machine/recorder.hpp"

namespace openvc::model {
namespace {

constexpr std::uint32_t kObjectBytes = 8;
constexpr std::uint32_t kMostArrivals = (1u << 20) - 1;
constexpr std::int64_t kMostBytes = (1 << 20) - 1;
/// What an object looks like in memory: whoever stores over it is seen.
constexpr std::uint64_t kObject = 0x6D62'6172'7269'6572;

std::byte* object(const BarrierPlace& place) {
  return cluster().block(place.rank).shared.data() + place.offset;
}

std::string name_of(const BarrierPlace& place) {
  return cluster().describe_barrier(place.rank, place.offset);
}

/// Empty if a barrier can be used; else what is wrong.
std::string damage(const BarrierPlace& place) {
  const auto& barriers = cluster().block(place.rank).barriers;
  if (!barriers.contains(place.offset)) return name_of(place) + " has not been initialised";
  if (std::memcmp(object(place), &kObject, kObjectBytes) != 0) {
    return name_of(place) + " has been overwritten";
  }
  return {};
}

Barrier& barrier_at(const BarrierPlace& place, Scope scope, const char* instruction) {
  check_initialised(place, scope, instruction);
  return cluster().block(place.rank).barriers.at(place.offset);
}

/// Completes the phase if it can. Empty, or what is wrong: a thread that waits for the phase before
/// would take its parity for one that is to come.
std::string settle(Barrier& barrier, const BarrierPlace& place) {
  if (barrier.pending != 0 || barrier.bytes != 0) return {};
  if (!barrier.woken.empty()) {
    return "phase " + std::to_string(barrier.phase) + " of " + name_of(place) +
           " completes before all who wait for phase " + std::to_string(barrier.phase - 1) +
           " have seen that it is over: " + std::to_string(barrier.woken.size()) +
           " threads, the first of " + cluster().describe_warp(barrier.woken.front());
  }
  ++barrier.phase;
  barrier.pending = barrier.arrivals;
  barrier.completed = barrier.arrived;
  barrier.woken.swap(barrier.waiting);
  for (const unsigned thread : barrier.woken) cluster().wake(thread);
  return {};
}

/// Empty if the bytes of a phase make sense; else what is wrong.
std::string miscount(const Barrier& barrier, const BarrierPlace& place) {
  if (barrier.bytes > kMostBytes || barrier.bytes < -kMostBytes) {
    return name_of(place) + " counts " + std::to_string(barrier.bytes) + " bytes; at most " +
           std::to_string(kMostBytes);
  }
  if (barrier.pending == 0 && barrier.bytes < 0) {
    return name_of(place) + ", phase " + std::to_string(barrier.phase) + ": " +
           std::to_string(-barrier.bytes) + " bytes more than were expected";
  }
  return {};
}

}  // namespace

std::string Barrier::describe() const {
  std::string text = "phase " + std::to_string(phase) + " lacks " + std::to_string(pending) +
                     " of " + std::to_string(arrivals) + " arrivals";
  if (bytes != 0) text += " and " + std::to_string(bytes) + " bytes";
  return text;
}

BarrierPlace barrier_place(std::uint32_t address, Scope scope, const char* instruction) {
  const std::uint32_t block = address >> kWindowBits;
  if (block != 0 && scope == Scope::block) {
    fail(std::string(instruction) + ": address " + hexadecimal(address) +
         " is of the cluster's window; this instruction takes barriers of the block");
  }
  const unsigned rank = block == 0 ? cluster().rank() : block - 1;
  const std::uint32_t offset = (address & ((1u << kWindowBits) - 1)) - kWindowBase;
  if (rank >= cluster().size() || !SharedMemory::is_inside(offset, kObjectBytes)) {
    fail(std::string(instruction) + ": no shared memory at address " + hexadecimal(address));
  }
  if (offset % kObjectBytes != 0) {
    fail(std::string(instruction) + ": a barrier at " + hexadecimal(address) +
         ", no multiple of 8");
  }
  if (cluster().block(rank).alive == 0) {
    fail(std::string(instruction) + ": " + cluster().describe_barrier(rank, offset) +
         " is of a block that has ended");
  }
  return {rank, offset};
}

void check_initialised(const BarrierPlace& place, Scope scope, const char* instruction) {
  const std::string text = damage(place);
  if (!text.empty()) fail(std::string(instruction) + ": " + text);
  const Barrier& barrier = cluster().block(place.rank).barriers.at(place.offset);
  if (cluster().clock().at(barrier.initialiser) < barrier.initialised) {
    fail(std::string(instruction) + ": nothing orders the initialisation of " + name_of(place) +
         " before this");
  }
  if (scope == Scope::cluster && !barrier.fenced) {
    fail(std::string(instruction) + ": no fence.mbarrier_init after the initialisation of " +
         name_of(place));
  }
}

RecordedBarrier recorded(const BarrierPlace& place) {
  const auto& names = cluster().grid().names;
  return {place.rank, place.offset,
          names.barrier ? names.barrier(place.offset) : "barrier " + hexadecimal(place.offset),
          cluster().block(place.rank).barriers.at(place.offset).arrivals};
}

void complete_bytes(const BarrierPlace& place, std::uint32_t bytes, const char* what,
                    unsigned issuer) {
  const std::string text = damage(place);
  if (!text.empty()) fail_engine(what, issuer, text);
  Barrier& barrier = cluster().block(place.rank).barriers.at(place.offset);
  barrier.bytes -= bytes;
  const std::string wrong = miscount(barrier, place);
  if (!wrong.empty()) fail_engine(what, issuer, wrong);
  const std::string early = settle(barrier, place);
  if (!early.empty()) fail_engine(what, issuer, early);
}

void init_barrier(std::uint32_t address, std::uint32_t arrivals) {
  const char* instruction = "mbarrier.init";
  const BarrierPlace place = barrier_place(address, Scope::block, instruction);
  arrivals += static_cast<std::uint32_t>(mutation_amount(instruction, place.rank, place.offset));
  if (arrivals == 0 || arrivals > kMostArrivals) {
    fail(std::string(instruction) + ": " + std::to_string(arrivals) + " arrivals; expected 1 to " +
         std::to_string(kMostArrivals));
  }
  Barrier& barrier = cluster().block(place.rank).barriers[place.offset];
  if (!barrier.waiting.empty()) {
    fail(std::string(instruction) + ": threads wait at " + name_of(place));
  }
  barrier = Barrier{.arrivals = arrivals,
                    .pending = arrivals,
                    .party = cluster().new_party(),
                    .initialiser = cluster().warp_party(),
                    .initialised = cluster().tick()};
  std::memcpy(object(place), &kObject, kObjectBytes);
  (void)cluster().block(place.rank).shared.chunk(place.offset);  // engines may come
}

void fence_barriers() {
  if (is_mutated(Mutation::Kind::skip, "fence.mbarrier_init")) return;
  Block& block = cluster().block();
  for (auto& [offset, barrier] : block.barriers) {
    if (barrier.initialiser == cluster().warp_party()) barrier.fenced = true;
  }
}

namespace {

void arrive_once(const BarrierPlace& place, std::uint32_t bytes, Scope scope,
                 const char* instruction) {
  Barrier& barrier = barrier_at(place, scope, instruction);
  if (barrier.pending == 0) {
    fail(std::string(instruction) + ": one arrival too many at " + name_of(place) + ": " +
         barrier.describe());
  }
  barrier.bytes += bytes;
  --barrier.pending;
  if (Recorder* watcher = recorder()) {
    watcher->arrive(cluster().warp_party(), recorded(place), bytes);
  }
  const std::uint64_t deed = cluster().tick();
  if (place.rank != cluster().rank()) barrier.from_peers.raise(cluster().warp_party(), deed);
  barrier.arrived.join(cluster().clock());
  const std::string wrong = miscount(barrier, place);
  if (!wrong.empty()) fail(std::string(instruction) + ": " + wrong);
  const std::string early = settle(barrier, place);
  if (!early.empty()) fail(std::string(instruction) + ": " + early);
}

}  // namespace

void arrive_by_engine(const BarrierPlace& place, const EngineArrival& arrival) {
  const auto refuse = [&](const std::string& text) {
    if (!text.empty()) fail_engine(arrival.what, arrival.issuer, text);
  };
  if (cluster().block(place.rank).alive == 0) {
    refuse(name_of(place) + " is of a block that has ended");
  }
  refuse(damage(place));
  Barrier& barrier = cluster().block(place.rank).barriers.at(place.offset);
  if (barrier.pending == 0) {
    refuse("one arrival too many at " + name_of(place) + ": " + barrier.describe());
  }
  --barrier.pending;
  if (place.rank != cluster().rank_of(arrival.issuer)) {
    barrier.from_peers.raise(arrival.from, arrival.before.at(arrival.from));
  }
  barrier.arrived.join(arrival.before);
  refuse(miscount(barrier, place));
  refuse(settle(barrier, place));
}

void arrive(std::uint32_t address, std::uint32_t bytes, Scope scope, const char* instruction) {
  cluster().perhaps_yield();
  const BarrierPlace place = barrier_place(address, scope, instruction);
  if (is_mutated(Mutation::Kind::skip, instruction, place.rank, place.offset)) return;
  if (is_mutated(Mutation::Kind::repeat, instruction, place.rank, place.offset)) {
    arrive_once(place, 0, scope, instruction);
  }
  bytes += static_cast<std::uint32_t>(mutation_amount(instruction, place.rank, place.offset));
  arrive_once(place, bytes, scope, instruction);
}

namespace {

/// Whether a phase is over; then what came before it has happened before what follows here.
bool passes(const BarrierPlace& place, std::uint32_t parity) {
  Barrier& barrier = barrier_at(place, Scope::block, "mbarrier.try_wait");
  std::erase(barrier.woken, cluster().running());
  if (!barrier.has_completed(parity)) return false;
  cluster().clock().join(barrier.completed);
  cluster().clock().raise(barrier.party, barrier.phase);
  return true;
}

constexpr const char* kTryWait = "mbarrier.try_wait";

BarrierPlace place_to_wait(std::uint32_t address, std::uint32_t& parity) {
  cluster().perhaps_yield();
  if (parity > 1) {
    fail(std::string(kTryWait) + ": parity " + std::to_string(parity) + "; expected 0 or 1");
  }
  const BarrierPlace place = barrier_place(address, Scope::block, kTryWait);
  parity ^= static_cast<std::uint32_t>(mutation_amount(kTryWait, place.rank, place.offset));
  return place;
}

}  // namespace

bool try_wait(std::uint32_t address, std::uint32_t parity) {
  const BarrierPlace place = place_to_wait(address, parity);
  if (passes(place, parity)) return true;
  if (!cluster().draw(2)) {
    wait_for_phase(address, parity);
    return true;
  }
  // The time that an unsuccessful wait takes; without it nobody would ever complete the phase.
  cluster().yield();
  return passes(place, parity);
}

void wait_for_phase(std::uint32_t address, std::uint32_t parity) {
  const BarrierPlace place = place_to_wait(address, parity);
  if (is_mutated(Mutation::Kind::skip, kTryWait, place.rank, place.offset)) return;
  while (!passes(place, parity)) {
    Thread& self = cluster().self();
    self.barrier = place.offset;
    self.parity = parity;
    cluster().block(place.rank).barriers.at(place.offset).waiting.push_back(cluster().running());
    cluster().suspend(State::at_mbarrier);
  }
  if (Recorder* watcher = recorder(); watcher != nullptr && cluster().stands_for_warp()) {
    watcher->wait(cluster().warp_party(), recorded(place),
                  cluster().block(place.rank).barriers.at(place.offset).phase);
  }
}

}  // namespace openvc::model
