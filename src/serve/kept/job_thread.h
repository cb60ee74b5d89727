// Threads that do jobs in the order in which they came: what waits for a drive or computes for
// long, and must not make a step of a model or anybody's short request wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace moeflux::serve {

/// Thread-safe. The destructor does the jobs that are left.
class JobThread {
 public:
  /// Several threads do as many jobs at once.
  explicit JobThread(int threads = 1);
  ~JobThread();
  JobThread(const JobThread&) = delete;
  JobThread& operator=(const JobThread&) = delete;

  void add(std::function<void()> job);
  /// Returns when no job is left.
  void wait();

 private:
  void work();

  std::mutex mutex_;  // guards what follows but the threads
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  int under_way_ = 0;
  bool ends_ = false;
  std::vector<std::jthread> threads_;  // last: they use all of it
};

}  // namespace moeflux::serve
