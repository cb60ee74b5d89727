// The CPU's threads, and how work is cut for them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <type_traits>

#include "base/thread_pool.h"

namespace moeflux::cpu {

class Workers {
 public:
  Workers(int threads, const ThreadCores& cores, std::chrono::microseconds look)
      : pool_(threads, cores, look) {}

  int threads() const { return pool_.threads(); }
  /// As ThreadPool has it, whatever the work.
  template <typename Fn>
  void parallel_for(int64_t count, Fn&& fn) {
    pool_.parallel_for(count, fn);
  }
  /// Runs fn(task) or fn(task, thread) for every task: on as many threads as `work` (multiply-adds
  /// or so) is worth. No two tasks at a time have the same thread < threads().
  template <typename Fn>
  void for_tasks(int64_t count, int64_t work, Fn&& fn) {
    constexpr int64_t kWorthThreads = 32 * 1024;  // about 3 us of one core
    constexpr int64_t kWorthThread = 16 * 1024;
    if (work >= kWorthThreads && count > 1) {
      pool_.parallel_for(count, fn, work / kWorthThread);
      return;
    }
    for (int64_t task = 0; task < count; ++task) {
      if constexpr (std::is_invocable_v<Fn&, int64_t, int>) {
        fn(task, 0);
      } else {
        fn(task);
      }
    }
  }
  /// fn(row) for rows of so much work each, as many a task as make it worth claiming.
  template <typename Fn>
  void for_rows(int64_t rows, int64_t row_work, Fn&& fn) {
    constexpr int64_t kTaskWork = 8 * 1024;
    const int64_t step = std::max<int64_t>(1, kTaskWork / std::max<int64_t>(row_work, 1));
    for_tasks((rows + step - 1) / step, rows * row_work, [&](int64_t task) {
      for (int64_t r = task * step; r < std::min(rows, (task + 1) * step); ++r) fn(r);
    });
  }
  /// Rows of a weight matrix one task computes, when `matrices` like it are computed at once.
  int64_t rows_per_task(int64_t rows, int64_t matrices) const {
    // Small enough that threads finish together, large enough to amortise a claim; a multiple of
    // the kernels' panel of 8 rows.
    constexpr int64_t kTasksPerThread = 8;
    constexpr int64_t kRowsMax = 64;
    const int64_t fair = rows * matrices / (pool_.threads() * kTasksPerThread);
    constexpr int64_t kPanel = 8;
    return std::clamp<int64_t>(fair / kPanel * kPanel, kPanel, kRowsMax);
  }

 private:
  ThreadPool pool_;
};

}  // namespace moeflux::cpu
