// SPDX-License-Identifier: BSD-3-Clause
#include "cpu/thread_pool.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

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

TEST(ThreadPool, SharedPoolsAreReused) {
  EXPECT_EQ(&shared_pool(2), &shared_pool(2));
  EXPECT_EQ(shared_pool(2).size(), 2);
  EXPECT_GE(shared_pool(0).size(), 1);
}

// A framework's data loader forks after the parent has used the pool. The child has no workers.
TEST(ThreadPool, WorksInAForkedChild) {
  ThreadPool& pool = shared_pool(3);
  pool.parallel_for(10, [](std::int64_t, int) {});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    std::int64_t sum = 0;
    pool.parallel_for(100, [&](std::int64_t index, int) { sum += index; });
    _exit(sum == 4950 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

}  // namespace
}  // namespace openvc::cpu
