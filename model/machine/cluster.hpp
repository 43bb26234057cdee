// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <boost/context/fiber.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "machine/block_product.hpp"
#include "machine/clock.hpp"
#include "machine/machine.hpp"
#include "machine/mbarrier.hpp"
#include "machine/shared_memory.hpp"
#include "machine/tensor_core.hpp"
#include "machine/tensor_memory.hpp"
#include "machine/transfer.hpp"

// The blocks of a cluster, and who of their threads runs.
namespace openvc::model {

/// What a thread waits for.
enum class State {
  ready,
  at_block_barrier,
  at_cluster_barrier,
  at_mbarrier,
  in_warp,
  for_registers,
  for_columns,
  ended,
};

struct Thread {
  boost::context::fiber fiber;
  State state = State::ready;
  const char* instruction = "";
  std::uint32_t barrier = 0;  // of at_mbarrier: offset in its block
  std::uint32_t parity = 0;
  bool waits_for_cluster = false;   // has arrived at its barrier
  std::uint64_t cluster_phase = 0;  // in which it has
  int registers = 0;
  bool is_abandoned = false;
  int mutations = 0;  // instructions that a planted fault concerns
  std::vector<Copy> open_copies;
  std::deque<std::vector<Copy>> copy_groups;
};

/// An instruction that some lanes of a warp have reached.
struct Meeting {
  unsigned mask = 0;
  unsigned arrived = 0;
  const char* instruction = "";
  Operands operands{};
};

struct Block {
  Block(const Grid& grid, unsigned index, unsigned rank);

  unsigned index;  // in the grid
  SharedMemory shared;
  std::map<std::uint32_t, Barrier> barriers;  // by offset
  std::vector<Meeting> meetings;              // of each warp
  std::deque<TensorCore> tensor_cores;        // of each warp
  std::vector<ProductLog> product_logs;       // of each warpgroup
  BlockPipe pipe;
  std::unique_ptr<TensorMemory> tensor_memory;  // made when somebody uses it
  unsigned alive;                               // threads
  unsigned at_barrier = 0;
  Clock arrived;   // at the barrier
  Clock released;  // from the last one
  int free_registers = 0;
};

class Cluster {
 public:
  Cluster(const Grid& grid, unsigned first_block, const Schedule& schedule,
          const std::function<void()>& body);

  void run();

  // ---- the thread that runs ----
  [[nodiscard]] Thread& self() { return threads_[running_]; }
  [[nodiscard]] unsigned running() const { return running_; }
  [[nodiscard]] unsigned rank() const { return running_ / grid_.threads; }
  [[nodiscard]] unsigned thread_in_block() const { return running_ % grid_.threads; }
  [[nodiscard]] unsigned rank_of(unsigned thread) const { return thread / grid_.threads; }
  [[nodiscard]] unsigned warp() const { return thread_in_block() / kWarpLanes; }
  [[nodiscard]] Block& block() { return *blocks_[rank()]; }

  /// Whether a recorder takes what the thread does for what its warp does: the first lane, or a
  /// lane that goes on alone. Others may come here a second time.
  [[nodiscard]] bool stands_for_warp() const;

  /// Lets others run until somebody wakes it.
  void suspend(State state);
  void wake(unsigned thread);
  /// Lets others go first.
  void yield();
  /// The same, if the schedule draws it: where a thread of the machine could be overtaken.
  void perhaps_yield();

  void synchronize_block();
  void arrive_at_cluster_barrier();
  void wait_at_cluster_barrier();
  void meet(unsigned mask, const char* instruction, void* operands,
            void (*execute)(const Operands&));
  /// setmaxnreg: registers of a thread change by way of the block's pool.
  void set_registers(int registers, bool more);
  /// Ends the launch with a fault where no exception may be thrown: the thread is left as it is.
  void abandon(const std::string& text);

  // ---- all of it ----
  [[nodiscard]] const Grid& grid() const { return grid_; }
  [[nodiscard]] const Schedule& schedule() const { return schedule_; }
  [[nodiscard]] Block& block(unsigned rank) { return *blocks_[rank]; }
  [[nodiscard]] unsigned size() const { return static_cast<unsigned>(blocks_.size()); }
  [[nodiscard]] TransferQueue& transfers() { return transfers_; }
  [[nodiscard]] bool draw(unsigned one_in);

  // ---- what came before what ----
  [[nodiscard]] unsigned warps_of_block() const {
    return (grid_.threads + kWarpLanes - 1) / kWarpLanes;
  }
  [[nodiscard]] Party warp_party() const { return rank() * warps_of_block() + warp(); }
  [[nodiscard]] Party product_party(unsigned rank, unsigned warp) const {
    return (size() + rank) * warps_of_block() + warp;
  }
  [[nodiscard]] Party new_party() { return next_party_++; }
  /// Of the warp that runs: its lanes are taken for one.
  [[nodiscard]] Clock& clock() { return clocks_[warp_party()]; }
  /// Counts a deed of the warp that runs.
  std::uint64_t tick();

  // ---- for messages ----
  [[nodiscard]] std::string where() const;
  [[nodiscard]] std::string describe_warp(unsigned thread) const;
  [[nodiscard]] std::string describe_warp_of_party(Party party) const;
  [[nodiscard]] std::string describe_barrier(unsigned rank, std::uint32_t offset) const;

 private:
  [[nodiscard]] std::size_t choose();
  [[nodiscard]] std::size_t engine_work() const;
  void advance_engine(std::size_t choice);
  void resume(unsigned thread);
  void end(unsigned thread);
  [[nodiscard]] bool release_block_barrier(unsigned rank);
  [[nodiscard]] bool has_arrived_at_cluster(const Thread& thread) const;
  void release_cluster_barrier();
  void give_registers(unsigned rank, int registers);
  [[nodiscard]] std::string describe_deadlock() const;
  void describe_waiting_warp(unsigned first_thread, std::string& text) const;

  const Grid& grid_;
  const Schedule schedule_;
  const std::function<void()>& body_;
  std::mt19937_64 random_;
  unsigned last_warp_ = 0;    // of Turns::one_warp_last: of the cluster
  unsigned first_block_ = 0;  // of Turns::one_block_first
  std::vector<std::unique_ptr<Block>> blocks_;
  TransferQueue transfers_;
  boost::context::fiber main_;
  std::exception_ptr failure_;
  std::vector<Thread> threads_;
  std::vector<Clock> clocks_;  // of all warps
  Party next_party_;
  std::deque<unsigned> ready_;
  unsigned running_ = 0;
  unsigned alive_ = 0;
  unsigned arrived_at_cluster_ = 0;  // in this phase, and not ended
  std::uint64_t cluster_phase_ = 0;
  Clock cluster_arrived_;
  Clock cluster_released_;
};

/// The cluster that runs. Throws outside of a launch.
Cluster& cluster();
/// Throws a Fault of the thread that runs.
[[noreturn]] void fail(const std::string& text);
/// Throws one of `what`, the work of an engine, which `issuer` (thread of the cluster) has begun.
[[noreturn]] void fail_engine(const char* what, unsigned issuer, const std::string& text);

/// A number as addresses are written.
std::string hexadecimal(std::uint64_t value);

}  // namespace openvc::model
