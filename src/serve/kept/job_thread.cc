#include "serve/kept/job_thread.h"

#include <system_error>
#include <utility>

namespace moeflux::serve {

JobThread::JobThread(int threads) {
  const auto start = [this] { threads_.emplace_back([this] { work(); }); };
  start();
  // One does all jobs where a system has no more; destroyed without ~JobThread, it would wait on.
  try {
    for (int i = 1; i < threads; ++i) start();
  } catch (const std::system_error&) {
  }
}

JobThread::~JobThread() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  changed_.notify_all();
}

void JobThread::add(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void JobThread::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty() && under_way_ == 0; });
}

void JobThread::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    ++under_way_;
    lock.unlock();
    job();
    job = nullptr;  // what it held may take long to end
    lock.lock();
    --under_way_;
    changed_.notify_all();
  }
}

}  // namespace moeflux::serve
