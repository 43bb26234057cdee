// SPDX-License-Identifier: BSD-3-Clause
#include <sstream>
#include <utility>

#include "machine/cluster.hpp"

// What messages say about places and about those who wait.
namespace openvc::model {
namespace {

std::string count_of(std::size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace

std::string hexadecimal(std::uint64_t value) {
  std::ostringstream text;
  text << "0x" << std::hex << value;
  return text.str();
}

std::string Cluster::where() const {
  std::string text = std::string(grid_.kernel) + ", block " +
                     std::to_string(blocks_[rank()]->index) + ", thread " +
                     std::to_string(thread_in_block());
  if (grid_.names.role) text += " (" + grid_.names.role(warp()) + ")";
  return text;
}

std::string Cluster::describe_warp(unsigned thread) const {
  const unsigned warp = thread % grid_.threads / kWarpLanes;
  std::string text = "warp " + std::to_string(warp);
  if (size() > 1)
    text = "block " + std::to_string(blocks_[thread / grid_.threads]->index) + " " + text;
  if (grid_.names.role) text += " (" + grid_.names.role(warp) + ")";
  return text;
}

std::string Cluster::describe_warp_of_party(Party party) const {
  return describe_warp(party / warps_of_block() * grid_.threads +
                       party % warps_of_block() * kWarpLanes);
}

std::string Cluster::describe_barrier(unsigned rank, std::uint32_t offset) const {
  std::string text = "the barrier at " + hexadecimal(kWindowBase + offset);
  if (grid_.names.barrier) text = grid_.names.barrier(offset) + " (" + text + ")";
  if (size() > 1) text += " of block " + std::to_string(blocks_[rank]->index);
  return text;
}

void Cluster::describe_waiting_warp(unsigned first_thread, std::string& text) const {
  const unsigned rank = first_thread / grid_.threads;
  const unsigned end = std::min(first_thread + kWarpLanes, (rank + 1) * grid_.threads);
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> at_mbarriers;
  std::map<State, std::size_t> states;
  for (unsigned i = first_thread; i < end; ++i) {
    const Thread& thread = threads_[i];
    if (thread.state == State::at_mbarrier) {
      ++at_mbarriers[{thread.barrier, thread.parity}];
    } else {
      ++states[thread.state];
    }
  }
  const std::string warp = "; " + describe_warp(first_thread) + " ";
  for (const auto& [place, lanes] : at_mbarriers) {
    const auto& [offset, parity] = place;
    text += warp + "waits with " + count_of(lanes, "lane") + " for parity " +
            std::to_string(parity) + " of " + describe_barrier(rank, offset) + ": " +
            blocks_[rank]->barriers.at(offset).describe();
  }
  const Meeting& meeting = blocks_[rank]->meetings[first_thread % grid_.threads / kWarpLanes];
  if (meeting.arrived != 0) {
    text += warp + "is in " + meeting.instruction + " with " +
            std::to_string(__builtin_popcount(meeting.arrived)) + " of " +
            std::to_string(__builtin_popcount(meeting.mask)) + " lanes";
  }
  if (const auto found = states.find(State::at_cluster_barrier); found != states.end()) {
    text += warp + "waits with " + count_of(found->second, "lane") + " at the cluster's barrier";
  }
  if (const auto found = states.find(State::for_registers); found != states.end()) {
    text += warp + "waits with " + count_of(found->second, "lane") + " for registers, of which " +
            std::to_string(blocks_[rank]->free_registers) + " are free";
  }
  if (states.contains(State::for_columns)) {
    text += ", which waits for columns of tensor memory that are free";
  }
}

std::string Cluster::describe_deadlock() const {
  std::string text = std::string(grid_.kernel) + ", block " + std::to_string(blocks_[0]->index) +
                     (size() > 1 ? " and its cluster" : "") + ": deadlock";
  for (unsigned rank = 0; rank < size(); ++rank) {
    const Block& block = *blocks_[rank];
    if (block.at_barrier != 0) {
      text += "; " + std::to_string(block.at_barrier) + " of " + std::to_string(block.alive) +
              " threads that have not ended wait at a barrier of the block";
    }
    const unsigned first = rank * grid_.threads;
    for (unsigned i = first; i < first + grid_.threads; i += kWarpLanes) {
      describe_waiting_warp(i, text);
    }
  }
  return text;
}

std::string Schedule::describe() const {
  constexpr const char* kTurns[] = {"in order", "random", "one warp last", "one block first"};
  constexpr const char* kEngines[] = {"eager", "lazy", "random"};
  return std::string("turns ") + kTurns[static_cast<int>(turns)] + ", engines " +
         kEngines[static_cast<int>(engines)] + ", seed " + std::to_string(seed);
}

}  // namespace openvc::model
