#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>
#if defined(__linux__)
#include <sched.h>
#endif

namespace moeflux {
namespace {

class ThreadPoolSizes : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolSizes, RunsEveryTaskExactlyOnce) {
  ThreadPool pool(GetParam());
  for (const int64_t count : {0, 1, 2, 3, 17, 1000}) {
    std::vector<int> runs(static_cast<size_t>(count), 0);
    pool.parallel_for(count, [&](int64_t task) { ++runs[static_cast<size_t>(task)]; });
    EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(count), 1)) << count << " tasks";
  }
}

TEST_P(ThreadPoolSizes, WhatTasksWroteIsVisibleToTheCallerAndToTheNextLoop) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> values(64, 0);
  for (int64_t round = 1; round <= 2000; ++round) {
    pool.parallel_for(64, [&](int64_t task) { values[static_cast<size_t>(task)] += task; });
    if (round % 500 != 0) continue;
    EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), round * (63 * 64 / 2));
  }
}

TEST_P(ThreadPoolSizes, LoopsAfterAPauseFindSleepingWorkers) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int64_t> sum{0};
    pool.parallel_for(8, [&](int64_t task) { sum += task; });
    EXPECT_EQ(sum.load(), 28);
  }
}

TEST_P(ThreadPoolSizes, LoopsComeWhileWorkersLookAndWhileTheySleep) {
  ThreadPool pool(GetParam(), {}, std::chrono::milliseconds(2));
  for (const int pause_us : {0, 100, 5000, 100, 0}) {
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    std::atomic<int64_t> sum{0};
    pool.parallel_for(8, [&](int64_t task) { sum += task; });
    EXPECT_EQ(sum.load(), 28) << pause_us;
  }
}

TEST_P(ThreadPoolSizes, TasksThatRunAtOnceHaveThreadNumbersOfTheirOwn) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> inside(static_cast<size_t>(pool.threads()));
  std::atomic<int> collisions{0};
  std::vector<int> runs(5000, 0);
  for (int round = 0; round < 20; ++round) {
    pool.parallel_for(5000, [&](int64_t task, int thread) {
      std::atomic<int>& own = inside[static_cast<size_t>(thread)];
      if (own.fetch_add(1) != 0) ++collisions;
      ++runs[static_cast<size_t>(task)];
      own.fetch_sub(1);
    });
  }
  EXPECT_EQ(collisions.load(), 0);
  EXPECT_EQ(runs, std::vector<int>(5000, 20));
}

TEST_P(ThreadPoolSizes, LoopsHaveNoMoreMembersThanTheyAskFor) {
  ThreadPool pool(GetParam());
  for (const int members : {0, 1, 2, 3, 100}) {
    std::vector<int> runs(3000, 0);
    std::atomic<int> highest{0};
    pool.parallel_for(
        3000,
        [&](int64_t task, int thread) {
          ++runs[static_cast<size_t>(task)];
          for (int seen = highest; seen < thread && !highest.compare_exchange_weak(seen, thread);) {
          }
        },
        members);
    EXPECT_EQ(runs, std::vector<int>(3000, 1)) << members << " members";
    EXPECT_LT(highest.load(), std::max(members, 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolSizes, ::testing::Values(1, 2, 3, 8));

TEST(ThreadPool, CountsTheCallerAsAThread) {
  EXPECT_EQ(ThreadPool(1).threads(), 1);
  EXPECT_EQ(ThreadPool(3).threads(), 3);
}

TEST(ThreadPool, OneThreadRunsTasksInOrderOnTheCaller) {
  ThreadPool pool(1);
  std::vector<int64_t> order;
  const std::thread::id caller = std::this_thread::get_id();
  pool.parallel_for(5, [&](int64_t task) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(task);
  });
  EXPECT_EQ(order, (std::vector<int64_t>{0, 1, 2, 3, 4}));
}

TEST(ThreadPool, SeveralPoolsLiveSideBySide) {
  ThreadPool a(2);
  ThreadPool b(2);
  std::atomic<int> calls{0};
  a.parallel_for(4, [&](int64_t) { ++calls; });
  b.parallel_for(4, [&](int64_t) { ++calls; });
  EXPECT_EQ(calls.load(), 8);
}

TEST(ThreadPoolDeathTest, NestedLoopsAbort) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(
      {
        ThreadPool pool(1);
        pool.parallel_for(1, [&](int64_t) { pool.parallel_for(1, [](int64_t) {}); });
      },
      "running_");
}

TEST(UsableCores, IsAtLeastOneAndAtMostWhatIsOnline) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

#if defined(__linux__)
int cores_of_this_thread(cpu_set_t& set) {
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

TEST(ThreadPoolPlacement, PinnedWorkersHaveOneCoreEachAndTheCallerKeepsItsOwn) {
  cpu_set_t before;
  const int cores = cores_of_this_thread(before);
  if (cores < 2) GTEST_SKIP() << "hardware: one usable core: nothing to tell apart";
  constexpr int kThreads = 2;
  for (const bool pinned : {false, true}) {
    ThreadPool pool(kThreads, place_threads(kThreads, pinned, {}, allowed_cores()));
    cpu_set_t of_thread[kThreads];
    std::atomic<int> arrived{0};
    // Each task waits for the other, so that both threads take part.
    pool.parallel_for(kThreads, [&](int64_t, int thread) {
      cores_of_this_thread(of_thread[thread]);
      ++arrived;
      while (arrived.load() < kThreads) std::this_thread::yield();
    });
    EXPECT_TRUE(CPU_EQUAL(&of_thread[0], &before));
    if (!pinned) {
      EXPECT_TRUE(CPU_EQUAL(&of_thread[1], &before));
    } else {
      EXPECT_EQ(CPU_COUNT(&of_thread[1]), 1);
    }
  }
}
#endif

}  // namespace
}  // namespace moeflux
