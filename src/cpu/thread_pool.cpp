// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/thread_pool.hpp"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace openvc::cpu {
namespace {

int usable_cpus() {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

/// Rounding to nearest and subnormals on, whatever the host program has set for its own threads:
/// results must not depend on it.
class DefaultFloatingPoint {
 public:
  DefaultFloatingPoint() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { std::fesetenv(&saved_); }
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
  std::fenv_t saved_;
};

using Task = std::function<void(std::int64_t index, int worker)>;

/// One parallel_for. It lives on the stack of its caller, which alone may finish all of it: a
/// process that forked has no workers left and still gets its result.
struct Job {
  Job(const Task& job_task, std::int64_t job_count) : task(job_task), count(job_count) {}

  const Task& task;
  const std::int64_t count;
  std::atomic<std::int64_t> next{0};
  int helpers = 0;           // workers inside run(); guarded by State::mutex
  std::exception_ptr error;  // the first one; guarded by error_mutex
  std::mutex error_mutex;

  void run(int worker) {
    for (std::int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      try {
        task(i, worker);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
        next.store(count);
      }
    }
  }
};

}  // namespace

struct ThreadPool::State {
  std::mutex mutex;
  std::vector<Job*> jobs;  // those that may still have tasks to hand out
  bool stopping = false;
  // Counters to sleep on. Condition variables would do too, but a child process may hang in one
  // whose waiters were lost in fork().
  std::atomic<std::uint32_t> arrivals{0};
  std::atomic<std::uint32_t> departures{0};
  std::vector<std::thread> threads;

  static void signal(std::atomic<std::uint32_t>& counter) {
    counter.fetch_add(1);
    counter.notify_all();
  }

  void work(int worker) {
    const DefaultFloatingPoint environment;
    for (;;) {
      const std::uint32_t seen = arrivals.load();
      Job* job = nullptr;
      {
        const std::lock_guard lock(mutex);
        if (stopping) return;
        if (!jobs.empty()) {
          job = jobs.front();
          ++job->helpers;
        }
      }
      if (job == nullptr) {
        arrivals.wait(seen);
        continue;
      }
      job->run(worker);
      {
        const std::lock_guard lock(mutex);
        std::erase(jobs, job);
        --job->helpers;
      }
      signal(departures);
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    signal(arrivals);
    for (std::thread& thread : threads) thread.join();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  const int wanted = threads > 0 ? threads : usable_cpus();
  try {
    state_->threads.reserve(static_cast<std::size_t>(wanted - 1));
    for (int worker = 1; worker < wanted; ++worker) {
      state_->threads.emplace_back(&State::work, state_.get(), worker);
    }
  } catch (const std::system_error&) {
    // The process may not start more threads: go on with those that there are.
  } catch (...) {
    state_->stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->stop(); }

int ThreadPool::size() const noexcept { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::parallel_for(std::int64_t count, const Task& task) {
  if (count <= 0) return;
  const DefaultFloatingPoint environment;
  Job job(task, count);
  if (count > 1 && size() > 1) {
    {
      const std::lock_guard lock(state_->mutex);
      state_->jobs.push_back(&job);
    }
    State::signal(state_->arrivals);
  }
  job.run(0);
  for (;;) {
    const std::uint32_t seen = state_->departures.load();
    {
      const std::lock_guard lock(state_->mutex);
      std::erase(state_->jobs, &job);
      if (job.helpers == 0) break;
    }
    state_->departures.wait(seen);
  }
  if (job.error) std::rethrow_exception(job.error);
}

ThreadPool& shared_pool(int threads) {
  // Never destroyed: joining threads during the exit of a process can hang it.
  static auto& mutex = *new std::mutex;
  static auto& pools = *new std::map<int, std::unique_ptr<ThreadPool>>;
  const int size = threads > 0 ? threads : usable_cpus();
  const std::lock_guard lock(mutex);
  std::unique_ptr<ThreadPool>& pool = pools[size];
  if (!pool) pool = std::make_unique<ThreadPool>(size);
  return *pool;
}

}  // namespace openvc::cpu
