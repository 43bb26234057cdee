// SPDX-License-Identifier: BSD-3-Clause
#include "machine/machine.hpp"

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace openvc::model {

Coordinates coordinates;

namespace {

namespace context = boost::context;

constexpr std::size_t kStackBytes = 256 * 1024;
/// Where the window of shared memory begins: address 0 is nobody's.
constexpr std::uint32_t kWindowBase = 0x400;
constexpr std::size_t kAlignment = 1024;

struct Copy {
  void* destination;
  const void* source;  // null: zeros
  std::size_t bytes;

  void perform() const {
    if (source == nullptr) {
      std::memset(destination, 0, bytes);
    } else {
      std::memcpy(destination, source, bytes);
    }
  }
};

/// What a thread waits for.
enum class State { ready, at_barrier, in_warp, ended };

struct Thread {
  context::fiber fiber;
  State state = State::ready;
  const char* instruction = "";
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

std::uint64_t g_seed = 0;

/// Stacks of threads that have ended serve others.
context::pooled_fixedsize_stack& stacks() {
  static context::pooled_fixedsize_stack pool(kStackBytes);
  return pool;
}

class Block {
 public:
  Block(const Grid& grid, unsigned index, const std::function<void()>& body)
      : grid_(grid),
        index_(index),
        body_(body),
        random_(g_seed + index),
        threads_(grid.threads),
        meetings_((grid.threads + kWarpLanes - 1) / kWarpLanes) {
    memory_.resize(kSharedBytes + kAlignment);
    void* start = memory_.data();
    std::size_t room = memory_.size();
    base_ = static_cast<std::byte*>(std::align(kAlignment, kSharedBytes, start, room));
    std::memset(base_, kPoison, kSharedBytes);
    if (grid.dynamic_shared_bytes > kSharedBytes) {
      throw Fault(name() + ": " + std::to_string(grid.dynamic_shared_bytes) +
                  " bytes of dynamic shared memory; a block has " + std::to_string(kSharedBytes));
    }
    static_end_ = grid.dynamic_shared_bytes;
  }

  void run() {
    for (unsigned i = 0; i < grid_.threads; ++i) {
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
    alive_ = grid_.threads;
    while (alive_ > 0) {
      if (ready_.empty()) throw Fault(describe_deadlock());
      resume(next());
      if (failure_) std::rethrow_exception(failure_);
    }
  }

  void wait() {
    // The main fiber is handed back and forth; another thread may have run meanwhile.
    const unsigned self = running_;
    main_ = std::move(main_).resume();
    running_ = self;
  }

  void synchronize() {
    Thread& thread = threads_[running_];
    thread.state = State::at_barrier;
    ++at_barrier_;
    if (!release_barrier()) {
      wait();
    } else {
      yield();
    }
  }

  void meet(unsigned mask, const char* instruction, void* operands,
            void (*execute)(const Operands&)) {
    Meeting& meeting = meetings_[running_ / kWarpLanes];
    const unsigned bit = 1u << (running_ % kWarpLanes);
    if ((mask & bit) == 0) {
      throw Fault(where() + ": " + instruction + " with a mask that leaves out the lane itself");
    }
    if (meeting.arrived != 0 &&
        (meeting.mask != mask || std::strcmp(meeting.instruction, instruction) != 0)) {
      throw Fault(where() + ": " + instruction + " while other lanes of the warp are in " +
                  meeting.instruction + "; lanes of a mask must execute the same instruction");
    }
    meeting.mask = mask;
    meeting.instruction = instruction;
    meeting.arrived |= bit;
    meeting.operands[running_ % kWarpLanes] = operands;
    Thread& thread = threads_[running_];
    thread.state = State::in_warp;
    thread.instruction = instruction;
    if (meeting.arrived != mask) {
      wait();
      return;
    }
    execute(meeting.operands);
    const unsigned first = running_ / kWarpLanes * kWarpLanes;
    for (unsigned i = 0; i < static_cast<unsigned>(kWarpLanes); ++i) {
      if ((mask >> i & 1u) == 0) continue;
      threads_[first + i].state = State::ready;
      if (first + i != running_) ready_.push_back(first + i);
    }
    meeting = {};
  }

  [[nodiscard]] unsigned running() const { return running_; }

  void* static_shared(const void* key, std::size_t bytes, std::size_t alignment) {
    const auto found = static_objects_.find(key);
    if (found != static_objects_.end()) return found->second;
    const std::size_t start = (static_end_ + alignment - 1) / alignment * alignment;
    if (start + bytes > kSharedBytes) {
      throw Fault(name() + ": more than " + std::to_string(kSharedBytes) +
                  " bytes of shared memory in a block");
    }
    static_end_ = start + bytes;
    return static_objects_[key] = base_ + start;
  }

  [[nodiscard]] std::byte* shared() const { return base_; }

  [[nodiscard]] std::size_t offset_of(const void* pointer, std::size_t bytes) const {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    const auto base = reinterpret_cast<std::uintptr_t>(base_);
    if (address < base || address + bytes > base + kSharedBytes) {
      throw Fault(where() + ": an address outside of shared memory is used as one inside");
    }
    return address - base;
  }

  void copy(void* destination, const void* source, std::size_t bytes) {
    (void)offset_of(destination, bytes);
    const Copy copy{destination, source, bytes};
    std::memset(destination, kPoison, bytes);
    if (g_seed == 0) {
      copy.perform();
    } else {
      threads_[running_].open_copies.push_back(copy);
    }
  }

  void commit() {
    Thread& thread = threads_[running_];
    thread.copy_groups.push_back(std::move(thread.open_copies));
    thread.open_copies.clear();
  }

  void wait_for_copies(int pending) {
    auto& groups = threads_[running_].copy_groups;
    while (static_cast<int>(groups.size()) > pending) {
      for (const Copy& copy : groups.front()) copy.perform();
      groups.pop_front();
    }
  }

 private:
  [[nodiscard]] std::string name() const {
    return std::string(grid_.kernel) + ", block " + std::to_string(index_);
  }
  [[nodiscard]] std::string where() const {
    return name() + ", thread " + std::to_string(running_);
  }

  unsigned next() {
    if (g_seed != 0) {
      std::uniform_int_distribution<std::size_t> place(0, ready_.size() - 1);
      std::swap(ready_.front(), ready_[place(random_)]);
    }
    const unsigned thread = ready_.front();
    ready_.pop_front();
    return thread;
  }

  void resume(unsigned index) {
    running_ = index;
    coordinates.thread = {index, 0, 0};
    coordinates.block = {index_, 0, 0};
    coordinates.block_size = {grid_.threads, 1, 1};
    coordinates.grid_size = {grid_.blocks, 1, 1};
    Thread& thread = threads_[index];
    thread.fiber = std::move(thread.fiber).resume();
    if (thread.state != State::ended) return;
    --alive_;
    (void)release_barrier();
  }

  /// Lets the others go first.
  void yield() {
    ready_.push_back(running_);
    wait();
  }

  /// Whether the threads at the barrier were all that are alive: they go on, all but the one that
  /// runs by the queue.
  bool release_barrier() {
    if (at_barrier_ == 0 || at_barrier_ < alive_) return false;
    for (unsigned i = 0; i < grid_.threads; ++i) {
      if (threads_[i].state != State::at_barrier) continue;
      threads_[i].state = State::ready;
      if (i != running_) ready_.push_back(i);
    }
    at_barrier_ = 0;
    return true;
  }

  [[nodiscard]] std::string describe_deadlock() const {
    std::string text = name() + ": deadlock; ";
    text += std::to_string(at_barrier_) + " of " + std::to_string(alive_) +
            " threads that have not ended wait at a barrier of the block";
    for (std::size_t warp = 0; warp < meetings_.size(); ++warp) {
      const Meeting& meeting = meetings_[warp];
      if (meeting.arrived == 0) continue;
      text += "; warp " + std::to_string(warp) + " is in " + meeting.instruction + " with " +
              std::to_string(__builtin_popcount(meeting.arrived)) + " of " +
              std::to_string(__builtin_popcount(meeting.mask)) + " lanes";
    }
    return text;
  }

  const Grid& grid_;
  unsigned index_;
  const std::function<void()>& body_;
  std::mt19937_64 random_;
  std::vector<std::byte> memory_;
  std::byte* base_ = nullptr;
  std::size_t static_end_ = 0;
  std::map<const void*, void*> static_objects_;
  context::fiber main_;
  std::exception_ptr failure_;
  std::vector<Thread> threads_;
  std::vector<Meeting> meetings_;
  std::deque<unsigned> ready_;
  unsigned running_ = 0;
  unsigned alive_ = 0;
  unsigned at_barrier_ = 0;
};

Block* g_block = nullptr;

Block& block() {
  if (g_block == nullptr) throw Fault("an instruction of a kernel outside of a launch");
  return *g_block;
}

}  // namespace

void set_seed(std::uint64_t seed) { g_seed = seed; }

void launch(const Grid& grid, const std::function<void()>& thread) {
  for (unsigned index = 0; index < grid.blocks; ++index) {
    Block block(grid, index, thread);
    g_block = &block;
    try {
      block.run();
    } catch (...) {
      g_block = nullptr;
      throw;
    }
    g_block = nullptr;
  }
}

void synchronize_block() { block().synchronize(); }

void execute_together(unsigned mask, const char* instruction, void* operands,
                      void (*execute)(const Operands&)) {
  block().meet(mask, instruction, operands, execute);
}

int lane() { return static_cast<int>(block().running() % kWarpLanes); }

void* static_shared(const void* key, std::size_t bytes, std::size_t alignment) {
  return block().static_shared(key, bytes, alignment);
}

void* dynamic_shared() { return block().shared(); }

std::uint32_t shared_address(const void* pointer) {
  return kWindowBase + static_cast<std::uint32_t>(block().offset_of(pointer, 1));
}

void* shared_pointer(std::uint32_t address, std::size_t bytes) {
  std::byte* pointer = block().shared() + (static_cast<std::ptrdiff_t>(address) - kWindowBase);
  (void)block().offset_of(pointer, bytes);
  return pointer;
}

void copy_asynchronously(void* destination, const void* source, std::size_t bytes, bool present) {
  block().copy(destination, present ? source : nullptr, bytes);
}

void commit_copies() { block().commit(); }
void wait_for_copies(int pending_groups) { block().wait_for_copies(pending_groups); }

}  // namespace openvc::model
