// SPDX-License-Identifier: BSD-3-Clause
#include "machine/mutation.hpp"

#include "machine/cluster.hpp"

namespace openvc::model {
namespace {

Mutation g_mutation;

/// Whether the thread that runs is one whose instruction is changed.
bool matches(Mutation::Kind kind, const char* instruction) {
  if (g_mutation.kind != kind || g_mutation.instruction != instruction) return false;
  const Cluster& running = cluster();
  const auto lane_of_warp = static_cast<int>(running.thread_in_block() % kWarpLanes);
  return (g_mutation.warp < 0 || g_mutation.warp == static_cast<int>(running.warp())) &&
         (g_mutation.lane < 0 || g_mutation.lane == lane_of_warp);
}

/// Counts a match.
bool is_due() {
  const int count = ++cluster().self().mutations;
  return count >= g_mutation.first && count <= g_mutation.last;
}

bool matches_barrier(unsigned rank, std::uint32_t offset) {
  return g_mutation.barrier.empty() ||
         cluster().describe_barrier(rank, offset).starts_with(g_mutation.barrier);
}

}  // namespace

void set_mutation(const Mutation& mutation) { g_mutation = mutation; }

bool is_mutated(Mutation::Kind kind, const char* instruction) {
  return matches(kind, instruction) && is_due();
}

bool is_mutated(Mutation::Kind kind, const char* instruction, unsigned barrier_rank,
                std::uint32_t barrier_offset) {
  return matches(kind, instruction) && matches_barrier(barrier_rank, barrier_offset) && is_due();
}

std::int64_t mutation_amount(const char* instruction) {
  return is_mutated(Mutation::Kind::change, instruction) ? g_mutation.amount : 0;
}

std::int64_t mutation_amount(const char* instruction, unsigned barrier_rank,
                             std::uint32_t barrier_offset) {
  return is_mutated(Mutation::Kind::change, instruction, barrier_rank, barrier_offset)
             ? g_mutation.amount
             : 0;
}

}  // namespace openvc::model
