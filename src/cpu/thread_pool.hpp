// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "cpu/default_threads.hpp"

namespace openvc::cpu {

/// A fixed set of worker threads. OpenMP is avoided on purpose: two OpenMP runtimes in one process
/// (ours and torch's) are a known source of deadlocks and oversubscription.
class ThreadPool {
 public:
  /// `threads` >= 1 counts the calling thread; 0 takes default_threads().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int size() const noexcept;

  /// Calls task(index, worker) for every 0 <= index < count, 0 <= worker < size(), and returns when
  /// all are done. Tasks are handed out one by one, so a task must not depend on which worker runs
  /// it or when. The first exception of a task, or of the caller's interrupt check, is rethrown
  /// here; the tasks that have not started then never do. Safe to call from several threads at the
  /// same time, and from inside a task. In a child process of fork() the caller computes alone.
  void parallel_for(std::int64_t count,
                    const std::function<void(std::int64_t index, int worker)>& task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// What calls use that do not say.
DefaultThreads default_threads();

/// The process's pool with that many threads (0 = default_threads()). There is one at a time: a
/// call that wants another number makes a new one, and the old one ends with its last owner. A
/// child process of fork() starts without a pool and makes its own.
std::shared_ptr<ThreadPool> shared_pool(int threads);

/// While this object lives, its thread calls `check` now and then when it computes: in
/// parallel_for(), between tasks and while it waits for the last ones, and in check_interrupt(). An
/// exception from it ends the work. An empty `check` is none.
class InterruptScope {
 public:
  explicit InterruptScope(const std::function<void()>& check);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  const std::function<void()>* outer_;
};

/// For long tasks and loops, at least every few milliseconds. Throws where the work has been
/// interrupted or has failed on another thread. Costs a few nanoseconds.
void check_interrupt();

}  // namespace openvc::cpu
