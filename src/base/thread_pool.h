// A fixed set of threads that run the iterations of one loop at a time, the caller among them.
//
// Each thread starts with a share of consecutive tasks, which it runs in order: weights that follow
// one another in memory are then read as one stream. When its share is done it takes tasks from the
// ends of others' shares. So which thread runs which task varies from run to run: a task must
// compute the same bits on any thread. A loop never waits for a worker that is still asleep; only
// for those that have taken part. Idle workers look for work for a while and then sleep. A loop of
// little work can ask for fewer threads than there are.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/numa.h"

namespace moeflux {

/// How long a thread looks for work before it sleeps. The usual time bridges the gap between two
/// operations of a step; an idle engine costs next to nothing, and a machine with other tenants
/// gets its core back. Large pools look for kWakeEach times their threads: the caller wakes
/// sleepers one after another, so its next loop would lose as much.
constexpr std::chrono::microseconds kLookUsual{30};
constexpr std::chrono::microseconds kWakeEach{3};
/// The same where another device has its part in each layer: to wake threads up for every one takes
/// longer than the look.
constexpr std::chrono::microseconds kLookBesideDevice{1000};

/// Whether this system keeps a thread on cores that it is told.
bool can_pin_threads();

/// Thread-compatible: one loop at a time. Nesting is a bug and aborts.
class ThreadPool {
 public:
  /// `threads` counts the caller: 1 means no worker at all, every loop runs inline. Workers stay on
  /// the cores of their number, where can_pin_threads(); number 0 is the caller's, whose thread is
  /// not the pool's to place.
  explicit ThreadPool(int threads, const ThreadCores& cores = {},
                      std::chrono::microseconds look = kLookUsual);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls fn(task) or fn(task, thread) once for every task in [0, count), count below 2^31, and
  /// returns when all have finished. No two tasks run at once with the same `thread` in [0,
  /// threads()): it may index workspaces. The tasks' writes are visible to the caller. At most
  /// `members` threads take part. Allocates nothing.
  template <typename Fn>
  void parallel_for(int64_t count, Fn&& fn, int64_t members = kThreadsMax) {
    using Callable = std::remove_reference_t<Fn>;
    run(count, members,
        {const_cast<void*>(static_cast<const void*>(std::addressof(fn))),
         [](void* callable, int64_t task, int thread) {
           if constexpr (std::is_invocable_v<Callable&, int64_t, int>) {
             (*static_cast<Callable*>(callable))(task, thread);
           } else {
             (*static_cast<Callable*>(callable))(task);
           }
         }});
  }

 private:
  struct TaskRef {
    void* callable = nullptr;
    void (*call)(void* callable, int64_t task, int thread) = nullptr;
  };
  struct alignas(64) Share {
    /// The rest of the thread's share: the first task in the low half, the end in the high half.
    std::atomic<uint64_t> left{0};
    /// 1 from before the thread looks whether the loop is still open until it has left the loop.
    std::atomic<uint32_t> inside{0};
  };

  void run(int64_t count, int64_t members, TaskRef task);
  void run_tasks(int thread, int members);
  void worker_loop(int thread);
  uint32_t await_change(const std::atomic<uint32_t>& word, uint32_t seen) const;

  // One word says everything workers need: a generation in the upper bits, whether the loop accepts
  // helpers, and how many threads are its members. Only the caller writes it: if each of 64 workers
  // counted itself in and out here, the line would cross the machine 128 times a loop. A worker
  // says that it is `inside` and then reads the word again; the caller closes the loop and then
  // reads who is inside. One order of all four holds for everyone, so nobody enters a closed loop
  // unseen, and the fields below are written only while nobody is inside.
  static constexpr int kThreadsMax = 0x7ff;
  static constexpr uint32_t kMembersMask = 0x7ffu;
  static constexpr uint32_t kOpen = 0x800u;
  static constexpr uint32_t kGeneration = 0x1000u;

  const std::chrono::microseconds look_;
  alignas(64) std::atomic<uint32_t> state_{0};
  alignas(64) std::atomic<bool> stopping_{false};
  std::atomic<bool> running_{false};
  TaskRef task_;
  std::vector<Share> shares_;
  std::vector<std::thread> workers_;
};

/// Cores this process may use: the smallest of what is online, its affinity mask and its cgroup's
/// CPU quota rounded up. At least 1.
int usable_cores();

}  // namespace moeflux
