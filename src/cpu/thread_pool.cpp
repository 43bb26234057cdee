// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/thread_pool.hpp"

#include <pthread.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "openvc/status.hpp"

namespace openvc::cpu {
namespace {

using Clock = std::chrono::steady_clock;

/// Often enough that Ctrl-C seems to act at once, seldom enough to cost nothing: the check of the
/// Python package takes the interpreter lock.
constexpr auto kInterruptInterval = std::chrono::milliseconds(50);

/// wait() of condition_variable is a symbol that libstdc++ has only since GCC 12, newer than the
/// systems that wheels serve; waiting with a limit is compiled in. A wake-up without a reason is
/// allowed for anyway.
constexpr auto kLongWait = std::chrono::hours(1);

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

/// Threads that are created meanwhile leave all signals to those of the host program, whose
/// handlers may rely on the thread that they run on.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t saved_{};
};

/// The check of this thread's InterruptScope, or null, and when it last ran.
thread_local const std::function<void()>* interrupt_check = nullptr;
thread_local Clock::time_point last_interrupt_check{};

void poll_interrupt() {
  if (interrupt_check == nullptr) return;
  const Clock::time_point now = Clock::now();
  if (now - last_interrupt_check < kInterruptInterval) return;
  last_interrupt_check = now;
  (*interrupt_check)();
}

using Task = std::function<void(std::int64_t index, int worker)>;

/// Leaves a task whose result nobody will see.
struct Abandoned {};

/// One parallel_for, on the stack of its caller.
class Job {
 public:
  Job(const Task& task, std::int64_t count) : task_(task), count_(count) {}

  void run(int worker);
  void poll() { attempt(poll_interrupt); }
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_relaxed); }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

  int helpers = 0;  // workers inside run(); guarded by State::mutex

 private:
  template <class Work>
  void attempt(const Work& work) {
    try {
      work();
    } catch (const Abandoned&) {
    } catch (...) {
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
      next_.store(count_);
      failed_.store(true, std::memory_order_relaxed);
    }
  }

  const Task& task_;
  const std::int64_t count_;
  std::atomic<std::int64_t> next_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // the first one; guarded by error_mutex_ while helpers run
  std::mutex error_mutex_;
};

/// The job whose task this thread is in.
thread_local const Job* current_job = nullptr;

void Job::run(int worker) {
  const Job* const outer = std::exchange(current_job, this);
  for (std::int64_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) {
    attempt([&] {
      task_(i, worker);
      poll_interrupt();
    });
  }
  current_job = outer;
}

/// Counts the fork() calls that led to this process. A pool of another generation has lost its
/// threads, and its mutex may be held by one of them for ever.
std::atomic<int> fork_generation{0};

}  // namespace

struct ThreadPool::State {
  const int generation = fork_generation.load();
  std::mutex mutex;
  std::condition_variable arrivals;
  std::condition_variable departures;
  std::vector<Job*> jobs;  // those that may still have tasks to hand out
  bool stopping = false;
  std::vector<std::thread> threads;

  [[nodiscard]] bool lost() const { return generation != fork_generation.load(); }

  void work(int worker) {
    const DefaultFloatingPoint environment;
    std::unique_lock lock(mutex);
    for (;;) {
      while (!stopping && jobs.empty()) arrivals.wait_for(lock, kLongWait);
      if (stopping) return;
      Job* const job = jobs.front();
      ++job->helpers;
      lock.unlock();
      job->run(worker);
      lock.lock();
      std::erase(jobs, job);
      if (--job->helpers == 0) departures.notify_all();
    }
  }

  void offer(Job& job) {
    {
      const std::lock_guard lock(mutex);
      jobs.push_back(&job);
    }
    arrivals.notify_all();
  }

  /// Returns when no worker is inside the job, nor will be.
  void withdraw(Job& job) {
    std::unique_lock lock(mutex);
    std::erase(jobs, &job);
    while (job.helpers > 0) {
      if (interrupt_check == nullptr) {
        departures.wait_for(lock, kLongWait);
        continue;
      }
      departures.wait_for(lock, kInterruptInterval);
      lock.unlock();
      job.poll();
      if (lost()) return;  // the check forked
      lock.lock();
    }
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    arrivals.notify_all();
    for (std::thread& thread : threads) thread.join();
  }
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>()) {
  const int wanted = threads > 0 ? threads : default_threads().count;
  const BlockedSignals blocked;
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

ThreadPool::~ThreadPool() {
  // Threads that fork() did not copy cannot be joined; what they own stays.
  if (state_->lost()) {
    static_cast<void>(state_.release());
    return;
  }
  state_->stop();
}

int ThreadPool::size() const noexcept { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::parallel_for(std::int64_t count, const Task& task) {
  if (count <= 0) return;
  const DefaultFloatingPoint environment;
  Job job(task, count);
  const bool shared = count > 1 && size() > 1 && !state_->lost();
  if (shared) state_->offer(job);
  job.run(0);
  if (shared && !state_->lost()) state_->withdraw(job);
  job.rethrow();
  if (shared && state_->lost()) {
    throw Error(ErrorCode::unsupported,
                "execution.check_interrupt: forked the process in the middle of a call; expected a "
                "function that returns in the process that called it. Leave the child process from "
                "there, or fork between calls.");
  }
}

namespace {

struct SharedPool {
  std::mutex mutex;
  std::shared_ptr<ThreadPool> pool;
  int threads = 0;  // that the pool was made for
  bool limits_read = false;
  ThreadLimits limits;
};

/// Never destroyed: joining threads during the exit of a process can hang it.
SharedPool& shared() {
  static auto& instance = *new SharedPool;
  return instance;
}

void before_fork() { shared().mutex.lock(); }
void after_fork_in_parent() { shared().mutex.unlock(); }
void after_fork_in_child() {
  fork_generation.fetch_add(1);
  shared().pool.reset();
  shared().mutex.unlock();
}

/// When the library is loaded, so that no fork() meets a half-made state.
[[maybe_unused]] const int kForkHandlers =
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

}  // namespace

DefaultThreads default_threads() {
  ThreadLimits limits;
  {
    const std::lock_guard lock(shared().mutex);
    ThreadLimits& known = shared().limits;
    if (!shared().limits_read) {
      known.quota = control_group_quota();
      if (const char* threads = std::getenv("OMP_NUM_THREADS")) known.omp_num_threads = threads;
      shared().limits_read = true;
    }
    limits = known;
  }
  limits.cpus = usable_cpus();
  return choose_threads(limits);
}

std::shared_ptr<ThreadPool> shared_pool(int threads) {
  const int wanted = threads > 0 ? threads : default_threads().count;
  std::shared_ptr<ThreadPool> former;  // joins its threads after the lock is gone
  const std::lock_guard lock(shared().mutex);
  if (!shared().pool || shared().threads != wanted) {
    former = std::exchange(shared().pool, std::make_shared<ThreadPool>(wanted));
    shared().threads = wanted;
  }
  return shared().pool;
}

InterruptScope::InterruptScope(const std::function<void()>& check)
    : outer_(std::exchange(interrupt_check, check ? &check : nullptr)) {
  last_interrupt_check = Clock::now();
}

InterruptScope::~InterruptScope() { interrupt_check = outer_; }

void check_interrupt() {
  if (current_job != nullptr && current_job->failed()) throw Abandoned{};
  poll_interrupt();
}

}  // namespace openvc::cpu
