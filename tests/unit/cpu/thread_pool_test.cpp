// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/thread_pool.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "openvc/status.hpp"

namespace openvc::cpu {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceOnAValidWorker) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    constexpr std::int64_t kTasks = 1000;
    std::vector<std::atomic<int>> calls(kTasks);
    std::atomic<bool> valid{true};
    pool.parallel_for(kTasks, [&](std::int64_t index, int worker) {
      ++calls[static_cast<std::size_t>(index)];
      if (worker < 0 || worker >= threads) valid = false;
    });
    for (const auto& count : calls) ASSERT_EQ(count, 1);
    EXPECT_TRUE(valid);
  }
}

TEST(ThreadPool, WorkerNumbersAreNotSharedInsideOneCall) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> busy(4);
  std::atomic<bool> shared{false};
  pool.parallel_for(200, [&](std::int64_t, int worker) {
    if (busy[static_cast<std::size_t>(worker)].exchange(1) != 0) shared = true;
    std::this_thread::yield();
    busy[static_cast<std::size_t>(worker)] = 0;
  });
  EXPECT_FALSE(shared);
}

TEST(ThreadPool, NothingToDo) {
  ThreadPool pool(2);
  pool.parallel_for(0, [](std::int64_t, int) { FAIL(); });
  pool.parallel_for(-1, [](std::int64_t, int) { FAIL(); });
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(pool.parallel_for(64,
                                   [](std::int64_t index, int) {
                                     if (index == 17) throw std::runtime_error("seventeen");
                                   }),
                 std::runtime_error);
    std::atomic<int> done{0};
    pool.parallel_for(64, [&](std::int64_t, int) { ++done; });
    ASSERT_EQ(done, 64);
  }
}

TEST(ThreadPool, ServesSeveralCallersAtOnce) {
  ThreadPool pool(3);
  std::vector<std::int64_t> sums(4);
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < sums.size(); ++caller) {
    callers.emplace_back([&pool, &sum = sums[caller]] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<std::int64_t> total{0};
        pool.parallel_for(50, [&](std::int64_t index, int) { total += index; });
        sum += total;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (std::int64_t sum : sums) EXPECT_EQ(sum, 200 * 50 * 49 / 2);
}

TEST(ThreadPool, TasksSeeTheDefaultFloatingPointEnvironment) {
  ThreadPool pool(3);
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  std::atomic<int> other_modes{0};
  pool.parallel_for(100, [&](std::int64_t, int) {
    if (std::fegetround() != FE_TONEAREST) ++other_modes;
  });
  EXPECT_EQ(std::fegetround(), FE_UPWARD) << "the caller's mode must come back";
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(other_modes, 0);
}

/// Threads of this process.
int running_threads() {
  const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

TEST(SharedPool, IsReusedAndOthersEnd) {
  const auto pool = shared_pool(2);
  EXPECT_EQ(pool, shared_pool(2));
  EXPECT_EQ(pool->size(), 2);
  EXPECT_EQ(shared_pool(0)->size(), default_threads().count);
  shared_pool(1);
  const int before = running_threads();
  for (int round = 0; round < 3; ++round) {
    for (int threads = 2; threads < 9; ++threads) {
      std::atomic<int> done{0};
      shared_pool(threads)->parallel_for(30, [&](std::int64_t, int) { ++done; });
      ASSERT_EQ(done, 30);
    }
  }
  shared_pool(1);
  EXPECT_EQ(running_threads(), before);
  std::atomic<int> done{0};
  pool->parallel_for(30, [&](std::int64_t, int) { ++done; });
  EXPECT_EQ(done, 30) << "an owner keeps its pool";
}

TEST(SharedPool, ServesThreadsThatWantDifferentNumbers) {
  std::atomic<int> done{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&done, caller] {
      for (int round = 0; round < 50; ++round) {
        shared_pool(1 + (caller + round) % 4)->parallel_for(10, [&](std::int64_t, int) { ++done; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done, 4 * 50 * 10);
}

TEST(ThreadPool, CallsInsideTasks) {
  ThreadPool pool(3);
  std::atomic<int> done{0};
  pool.parallel_for(8, [&](std::int64_t, int) {
    pool.parallel_for(8, [&](std::int64_t, int) { ++done; });
    shared_pool(2)->parallel_for(8, [&](std::int64_t, int) { ++done; });
  });
  EXPECT_EQ(done, 128);
}

TEST(ThreadPool, WorkersTakeNoSignals) {
  ThreadPool pool(4);
  std::atomic<int> open{0};
  const auto caller = std::this_thread::get_id();
  pool.parallel_for(64, [&](std::int64_t, int) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    if (std::this_thread::get_id() != caller && sigismember(&mask, SIGINT) == 0) ++open;
    std::this_thread::yield();
  });
  EXPECT_EQ(open, 0);
}

struct Interrupt : std::exception {};

/// Throws once `delay` has passed.
class Alarm {
 public:
  explicit Alarm(std::chrono::milliseconds delay)
      : end_(std::chrono::steady_clock::now() + delay) {}
  void operator()() const {
    if (std::this_thread::get_id() != thread_) ADD_FAILURE() << "on another thread";
    if (std::chrono::steady_clock::now() >= end_) throw Interrupt();
  }

 private:
  std::chrono::steady_clock::time_point end_;
  std::thread::id thread_ = std::this_thread::get_id();
};

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

TEST(Interrupt, EndsShortTasksLongTasksAndTheWaitForOthers) {
  constexpr double kAtOnce = 5.0;  // of at least 20 seconds of work, on a loaded machine
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const std::function<void()> check = Alarm(std::chrono::milliseconds(100));
    const InterruptScope scope(check);
    EXPECT_LT(seconds_of([&] {
                EXPECT_THROW(pool.parallel_for(30000, [](std::int64_t, int) { nap(); }), Interrupt);
              }),
              kAtOnce);
    EXPECT_LT(seconds_of([&] {
                EXPECT_THROW(pool.parallel_for(2 * threads,
                                               [](std::int64_t, int) {
                                                 for (int i = 0; i < 10000; ++i) {
                                                   nap();
                                                   check_interrupt();
                                                 }
                                               }),
                             Interrupt);
              }),
              kAtOnce);
    EXPECT_LT(seconds_of([&] {
                EXPECT_THROW(
                    for (;;) {
                      nap();
                      check_interrupt();
                    },
                    Interrupt);
              }),
              kAtOnce)
        << "outside of a pool";
    if (threads == 1) continue;
    // The caller has nothing left to do and waits for a worker.
    EXPECT_LT(seconds_of([&] {
                std::atomic<bool> helped{false};
                EXPECT_THROW(pool.parallel_for(threads,
                                               [&](std::int64_t, int worker) {
                                                 if (worker != 0) helped = true;
                                                 for (int i = 0; worker != 0 && i < 10000; ++i) {
                                                   nap();
                                                   check_interrupt();
                                                 }
                                                 while (!helped) nap();
                                               }),
                             Interrupt);
              }),
              kAtOnce);
  }
  ThreadPool pool(3);
  std::atomic<int> done{0};
  pool.parallel_for(100, [&](std::int64_t, int) { ++done; });
  EXPECT_EQ(done, 100) << "no scope, no check";
}

TEST(Interrupt, AFailureEndsTheTasksOfOthers) {
  ThreadPool pool(3);
  EXPECT_LT(seconds_of([&] {
              EXPECT_THROW(pool.parallel_for(3,
                                             [](std::int64_t index, int) {
                                               if (index == 2) throw std::runtime_error("two");
                                               for (int i = 0; i < 10000; ++i) {
                                                 nap();
                                                 check_interrupt();
                                               }
                                             }),
                           std::runtime_error);
            }),
            5.0);
}

TEST(Interrupt, TheCheckMayUseThePool) {
  const auto pool = shared_pool(3);
  std::atomic<int> inner{0};
  const std::function<void()> check = [&] {
    pool->parallel_for(10, [&](std::int64_t, int) { ++inner; });
  };
  const InterruptScope scope(check);
  std::atomic<int> outer{0};
  pool->parallel_for(200, [&](std::int64_t, int) {
    nap();
    ++outer;
  });
  EXPECT_EQ(outer, 200);
  EXPECT_GE(inner, 10);
}

#if !defined(__SANITIZE_THREAD__)  // it ends a child process of several threads that starts one

/// Exit status of a child process that runs `work`, -1 if a signal ended it.
int status_of_child(const std::function<bool()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(work() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Whether the shared pool works with that many threads: each of them waits for all others.
bool uses_threads(int threads) {
  std::atomic<int> arrived{0};
  shared_pool(threads)->parallel_for(threads, [&](std::int64_t, int) {
    ++arrived;
    while (arrived < threads) std::this_thread::yield();
  });
  return arrived == threads && running_threads() >= threads;
}

// A framework's data loader forks after the parent has used the pool.
TEST(Fork, AChildAndItsChildrenHaveThreads) {
  ASSERT_TRUE(uses_threads(3));
  EXPECT_EQ(status_of_child([] {
              return uses_threads(3) && uses_threads(2) &&
                     status_of_child([] { return uses_threads(3); }) == 0 && uses_threads(3);
            }),
            0);
  EXPECT_TRUE(uses_threads(3));
}

TEST(Fork, WhileOtherThreadsComputeAndChangePools) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&stop, caller] {
      for (int round = 0; !stop; ++round) {
        shared_pool(2 + (caller + round / 50) % 2)->parallel_for(20, [](std::int64_t, int) {});
      }
    });
  }
  for (int round = 0; round < 30; ++round) {
    ASSERT_EQ(status_of_child([] { return uses_threads(3); }), 0) << round;
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
}

TEST(Fork, APoolOfTheParentComputesAloneInAChild) {
  auto pool = std::make_shared<ThreadPool>(3);
  pool->parallel_for(10, [](std::int64_t, int) {});
  EXPECT_EQ(status_of_child([&] {
              std::int64_t sum = 0;
              pool->parallel_for(100, [&](std::int64_t index, int) { sum += index; });
              pool.reset();  // joins nobody
              return sum == 4950;
            }),
            0);
}

TEST(Fork, InsideACallIsAnErrorInTheChild) {
  const auto pool = shared_pool(3);
  pid_t child = -1;
  const std::function<void()> check = [&] {
    if (child == -1) child = fork();
  };
  const auto work = [&] {
    const InterruptScope scope(check);
    pool->parallel_for(200, [](std::int64_t, int) { nap(); });
  };
  const pid_t parent = getpid();
  try {
    work();
  } catch (const Error&) {
    _exit(getpid() == parent ? 1 : uses_threads(2) ? 7 : 2);
  }
  if (getpid() != parent) _exit(3);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

#endif

}  // namespace
}  // namespace openvc::cpu
