// SPDX-License-Identifier: BSD-3-Clause
#include "machine/cluster.hpp"

#include <boost/context/pooled_fixedsize_stack.hpp>
#include <utility>

#include "machine/recorder.hpp"

namespace openvc::model {
namespace {

namespace context = boost::context;

constexpr std::size_t kStackBytes = 256 * 1024;
/// How often a thread is overtaken where it could be.
constexpr unsigned kYieldOneIn = 4;
/// How often a copy is done before the next thread goes on.
constexpr unsigned kCopyOneIn = 8;
constexpr int kRegisterFile = 65536;
constexpr int kRegisterUnit = 8;
constexpr int kMostRegisters = 256;

/// Stacks of threads that have ended serve others.
context::pooled_fixedsize_stack& stacks() {
  static context::pooled_fixedsize_stack pool(kStackBytes);
  return pool;
}

}  // namespace

Block::Block(const Grid& grid, unsigned block_index, unsigned rank)
    : index(block_index),
      meetings((grid.threads + kWarpLanes - 1) / kWarpLanes),
      product_logs((meetings.size() + 3) / 4),
      pipe(rank),
      alive(grid.threads) {
  shared.reserve_dynamic(grid.dynamic_shared_bytes);
  for (unsigned warp = 0; warp < meetings.size(); ++warp) tensor_cores.emplace_back(rank, warp);
}

Cluster::Cluster(const Grid& grid, unsigned first_block, const Schedule& schedule,
                 const std::function<void()>& body)
    : grid_(grid),
      schedule_(schedule),
      body_(body),
      random_(schedule.seed + first_block),
      threads_(grid.threads * grid.cluster_size),
      alive_(grid.threads * grid.cluster_size) {
  for (unsigned rank = 0; rank < grid.cluster_size; ++rank) {
    blocks_.push_back(std::make_unique<Block>(grid, first_block + rank, rank));
  }
  const unsigned warps = grid.cluster_size * warps_of_block();
  clocks_.resize(warps);
  next_party_ = 2 * warps;
  last_warp_ = static_cast<unsigned>(random_() % warps);
  first_block_ = static_cast<unsigned>(random_() % grid.cluster_size);
  const int registers =
      kRegisterFile / static_cast<int>(grid.threads) / kRegisterUnit * kRegisterUnit;
  for (Thread& thread : threads_) {
    thread.registers = registers < kMostRegisters ? registers : kMostRegisters;
  }
}

void Cluster::run() {
  for (unsigned i = 0; i < threads_.size(); ++i) {
    threads_[i].fiber =
        context::fiber(std::allocator_arg, stacks(), [this, i](context::fiber&& main) {
          main_ = std::move(main);
          try {
            body_();
          } catch (const context::detail::forced_unwind&) {
            throw;
          } catch (...) {
            failure_ = std::current_exception();
          }
          threads_[i].state = State::ended;
          return std::move(main_);
        });
    ready_.push_back(i);
  }
  if (Recorder* watcher = recorder()) {
    for (unsigned i = 0; i < threads_.size(); i += kWarpLanes) {
      running_ = i;
      watcher->begin_warp(
          warp_party(), rank(), warp(),
          grid_.names.role ? grid_.names.role(warp()) : "warp " + std::to_string(warp()));
    }
  }
  while (alive_ > 0) {
    const bool nobody = ready_.empty();
    const std::size_t work = engine_work();
    if (work != 0 && (nobody || (schedule_.engines == Engines::random && draw(kCopyOneIn)))) {
      advance_engine(schedule_.turns == Turns::in_order ? 0 : random_() % work);
      continue;
    }
    if (nobody) throw Fault(describe_deadlock());
    const std::size_t chosen = choose();
    const unsigned thread = ready_[chosen];
    ready_[chosen] = ready_.front();
    ready_.pop_front();
    resume(thread);
    if (failure_) std::rethrow_exception(failure_);
  }
}

/// What engines can do next: any of the copies, the first product or commit of a block.
std::size_t Cluster::engine_work() const {
  std::size_t work = transfers_.size();
  for (const auto& block : blocks_) work += block->pipe.empty() ? 0 : 1;
  return work;
}

void Cluster::advance_engine(std::size_t choice) {
  if (choice < transfers_.size()) return transfers_.complete(choice);
  choice -= transfers_.size();
  for (const auto& block : blocks_) {
    if (!block->pipe.empty() && choice-- == 0) return block->pipe.advance();
  }
}

std::uint64_t Cluster::tick() {
  const std::uint64_t count = clock().at(warp_party()) + 1;
  clock().raise(warp_party(), count);
  return count;
}

bool Cluster::draw(unsigned one_in) {
  return schedule_.turns != Turns::in_order && random_() % one_in == 0;
}

std::size_t Cluster::choose() {
  if (schedule_.turns == Turns::in_order) return 0;
  const std::size_t start = random_() % ready_.size();
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    const std::size_t place = (start + i) % ready_.size();
    const unsigned thread = ready_[place];
    const bool goes_first =
        schedule_.turns == Turns::one_warp_last     ? thread / kWarpLanes != last_warp_
        : schedule_.turns == Turns::one_block_first ? thread / grid_.threads == first_block_
                                                    : true;
    if (goes_first) return place;
  }
  return start;
}

void Cluster::resume(unsigned index) {
  running_ = index;
  coordinates.thread = {thread_in_block(), 0, 0};
  coordinates.block = {block().index, 0, 0};
  coordinates.block_size = {grid_.threads, 1, 1};
  coordinates.grid_size = {grid_.blocks, 1, 1};
  Thread& thread = threads_[index];
  const auto shared = reinterpret_cast<std::uintptr_t>(block().shared.data());
  window = {shared, shared + kSharedBytes};
  Recorder* watcher = lane() == 0 ? recorder() : nullptr;
  instruction_counts = watcher != nullptr ? &watcher->counts(warp_party()) : nullptr;
  thread.fiber = std::move(thread.fiber).resume();
  window = {};
  instruction_counts = nullptr;
  // Its frames cannot be unwound: they stay until the process ends.
  if (thread.is_abandoned) new context::fiber(std::move(thread.fiber));
  if (thread.state == State::ended && !failure_) end(index);
}

bool Cluster::stands_for_warp() const {
  const unsigned first = running_ - running_ % grid_.threads % kWarpLanes;
  const State state = threads_[first].state;
  return running_ == first || state == State::in_warp || state == State::ended;
}

void Cluster::abandon(const std::string& text) {
  failure_ = std::make_exception_ptr(Fault(where() + ": " + text));
  self().is_abandoned = true;
  main_ = std::move(main_).resume();
}

void Cluster::end(unsigned index) {
  Block& own = block();
  const TensorCore& tensor_core = own.tensor_cores[warp()];
  if (!tensor_core.is_idle()) fail("ends before it has waited for its products (wgmma)");
  if (own.tensor_memory != nullptr) own.tensor_memory->end_of_thread();
  --alive_;
  --own.alive;
  if (has_arrived_at_cluster(threads_[index])) --arrived_at_cluster_;
  (void)release_block_barrier(rank());
  release_cluster_barrier();
  if (own.alive > 0) return;
  transfers_.expect_none(rank());
  Clock before;
  for (unsigned i = 0; i < warps_of_block(); ++i) {
    before.join(clocks_[rank() * warps_of_block() + i]);
  }
  for (const auto& [offset, barrier] : own.barriers) {
    if (before.covers(barrier.from_peers)) continue;
    fail("the block ends, and nothing orders an arrival of another block at " +
         describe_barrier(rank(), offset) + " before that");
  }
  own.pipe.end_of_block(before);
  if (own.tensor_memory != nullptr) own.tensor_memory->end_of_block();
  for (const ProductLog& log : own.product_logs) {
    if (!log.is_even()) fail("the warps of a warpgroup have issued unlike numbers of products");
  }
}

void Cluster::suspend(State state) {
  // The main fiber is handed back and forth; another thread may have run meanwhile.
  const unsigned self = running_;
  threads_[self].state = state;
  main_ = std::move(main_).resume();
  running_ = self;
}

void Cluster::wake(unsigned thread) {
  threads_[thread].state = State::ready;
  ready_.push_back(thread);
}

void Cluster::yield() {
  ready_.push_back(running_);
  suspend(State::ready);
}

void Cluster::perhaps_yield() {
  if (draw(kYieldOneIn)) yield();
}

}  // namespace openvc::model
