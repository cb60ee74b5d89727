// One thread that does jobs one after the other: what waits for a drive, and must not make a step
// of a model wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace moeflux::serve {

/// Thread-safe. The destructor does the jobs that are left.
class JobThread {
 public:
  JobThread();
  ~JobThread();
  JobThread(const JobThread&) = delete;
  JobThread& operator=(const JobThread&) = delete;

  void add(std::function<void()> job);
  /// Returns when every job that was added before is done.
  void wait();

 private:
  void work();

  std::mutex mutex_;  // guards what follows but the thread
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // the first is being done
  bool ends_ = false;
  std::jthread thread_;  // last: it uses all of it
};

}  // namespace moeflux::serve
