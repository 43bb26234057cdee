// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>

#include "machine/cluster.hpp"
#include "machine/mutation.hpp"

// Where threads of a cluster wait for each other.
namespace openvc::model {
namespace {

constexpr int kRegisterUnit = 8;
constexpr int kLeastRegisters = 24;
constexpr int kMostRegisters = 256;

}  // namespace

// ---- the barrier of a block ---------------------------------------------------------------------

void Cluster::synchronize_block() {
  if (is_mutated(Mutation::Kind::skip, "bar.sync")) return;
  self().state = State::at_block_barrier;
  ++block().at_barrier;
  (void)tick();
  block().arrived.join(clock());
  if (release_block_barrier(rank())) {
    yield();
  } else {
    suspend(State::at_block_barrier);
  }
  clock().join(block().released);
}

/// Whether the threads at the barrier were all that are alive: they go on, all but the one that
/// runs by the queue.
bool Cluster::release_block_barrier(unsigned rank) {
  Block& block = *blocks_[rank];
  if (block.at_barrier == 0 || block.at_barrier < block.alive) return false;
  const unsigned first = rank * grid_.threads;
  for (unsigned i = first; i < first + grid_.threads; ++i) {
    if (threads_[i].state != State::at_block_barrier) continue;
    threads_[i].state = State::ready;
    if (i != running_) ready_.push_back(i);
  }
  block.at_barrier = 0;
  block.released = block.arrived;
  return true;
}

// ---- the barrier of a cluster -------------------------------------------------------------------

bool Cluster::has_arrived_at_cluster(const Thread& thread) const {
  return thread.waits_for_cluster && thread.cluster_phase == cluster_phase_;
}

void Cluster::arrive_at_cluster_barrier() {
  const char* instruction = "barrier.cluster.arrive";
  if (is_mutated(Mutation::Kind::skip, "barrier.cluster")) return;
  execute_aligned(instruction);
  Thread& thread = self();
  if (thread.waits_for_cluster) {
    fail(std::string(instruction) + ": a second time without barrier.cluster.wait between");
  }
  thread.waits_for_cluster = true;
  thread.cluster_phase = cluster_phase_;
  ++arrived_at_cluster_;
  (void)tick();
  cluster_arrived_.join(clock());
  release_cluster_barrier();
}

void Cluster::wait_at_cluster_barrier() {
  const char* instruction = "barrier.cluster.wait";
  if (is_mutated(Mutation::Kind::skip, "barrier.cluster")) return;
  execute_aligned(instruction);
  if (!self().waits_for_cluster) {
    fail(std::string(instruction) + ": without barrier.cluster.arrive before it");
  }
  if (has_arrived_at_cluster(self())) suspend(State::at_cluster_barrier);
  self().waits_for_cluster = false;
  clock().join(cluster_released_);
}

void Cluster::release_cluster_barrier() {
  if (arrived_at_cluster_ == 0 || arrived_at_cluster_ < alive_) return;
  arrived_at_cluster_ = 0;
  ++cluster_phase_;
  cluster_released_ = cluster_arrived_;
  for (unsigned i = 0; i < threads_.size(); ++i) {
    if (threads_[i].state == State::at_cluster_barrier) wake(i);
  }
}

// ---- instructions of a warp ---------------------------------------------------------------------

void Cluster::meet(unsigned mask, const char* instruction, void* operands,
                   void (*execute)(const Operands&)) {
  Meeting& meeting = block().meetings[warp()];
  const unsigned lane = thread_in_block() % kWarpLanes;
  const unsigned bit = 1u << lane;
  if ((mask & bit) == 0) {
    fail(std::string(instruction) + " with a mask that leaves out the lane itself");
  }
  if (meeting.arrived != 0 &&
      (meeting.mask != mask || std::strcmp(meeting.instruction, instruction) != 0)) {
    fail(std::string(instruction) + " while other lanes of the warp are in " + meeting.instruction +
         "; lanes of a mask must execute the same instruction");
  }
  meeting.mask = mask;
  meeting.instruction = instruction;
  meeting.arrived |= bit;
  meeting.operands.at(lane) = operands;
  self().instruction = instruction;
  if (meeting.arrived != mask) {
    suspend(State::in_warp);
    return;
  }
  execute(meeting.operands);
  const unsigned first = running_ - lane;
  for (unsigned i = 0; i < static_cast<unsigned>(kWarpLanes); ++i) {
    if ((mask >> i & 1u) != 0 && i != lane) wake(first + i);
  }
  meeting = {};
}

// ---- registers ----------------------------------------------------------------------------------

void Cluster::give_registers(unsigned rank, int registers) {
  blocks_[rank]->free_registers += registers;
  const unsigned first = rank * grid_.threads;
  for (unsigned i = first; i < first + grid_.threads; ++i) {
    if (threads_[i].state == State::for_registers) wake(i);
  }
}

void Cluster::set_registers(int registers, bool more) {
  const char* instruction = more ? "setmaxnreg.inc" : "setmaxnreg.dec";
  if (is_mutated(Mutation::Kind::skip, instruction)) return;
  execute_aligned(instruction);
  Thread& thread = self();
  const std::string has = std::string(instruction) + ": " + std::to_string(registers) +
                          " registers, the thread has " + std::to_string(thread.registers);
  if (registers % kRegisterUnit != 0 || registers < kLeastRegisters || registers > kMostRegisters) {
    fail(has + "; expected a multiple of 8 from 24 to 256");
  }
  const int change = registers - thread.registers;
  if (more ? change < 0 : change > 0) fail(has);
  thread.registers = registers;
  if (!more) return give_registers(rank(), -change);
  while (block().free_registers < change) suspend(State::for_registers);
  block().free_registers -= change;
}

}  // namespace openvc::model
