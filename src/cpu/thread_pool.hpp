// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace openvc::cpu {

/// A fixed set of worker threads. OpenMP is avoided on purpose: two OpenMP runtimes in one process
/// (ours and torch's) are a known source of deadlocks and oversubscription.
class ThreadPool {
 public:
  /// `threads` >= 1 counts the calling thread; 0 takes every CPU that the process may run on.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int size() const noexcept;

  /// Calls task(index, worker) for every 0 <= index < count, 0 <= worker < size(), and returns when
  /// all are done. Tasks are handed out one by one, so a task must not depend on which worker runs
  /// it or when. The first exception of a task is rethrown here. Safe to call from several threads
  /// at the same time; not from inside a task.
  void parallel_for(std::int64_t count,
                    const std::function<void(std::int64_t index, int worker)>& task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The process-wide pool with that many threads (0 = all); pools are created on first use.
ThreadPool& shared_pool(int threads);

}  // namespace openvc::cpu
