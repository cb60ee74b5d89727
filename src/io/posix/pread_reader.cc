// AsyncReader over blocking reads: a queue and a few threads. The portable path, and the fallback
// of every other.
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "io/async_reader.h"

namespace moeflux {
namespace {

class PreadReader final : public AsyncReader {
 public:
  explicit PreadReader(int threads) {
    MF_CHECK(threads >= 1);
    workers_.reserve(static_cast<size_t>(threads));
    // A system out of threads slows us down but does not stop us: without any, wait() reads.
    try {
      for (int i = 0; i < threads; ++i) workers_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
    }
  }
  PreadReader(const PreadReader&) = delete;
  PreadReader& operator=(const PreadReader&) = delete;

  ~PreadReader() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
    }
    work_arrived_.notify_all();
    for (std::thread& worker : workers_) worker.join();  // a read that has begun ends first
  }

  void submit(std::span<const ReadRequest> requests) override {
    for (const ReadRequest& request : requests) MF_CHECK(request.file != nullptr);
    {
      const std::lock_guard lock(mutex_);
      queue_.insert(queue_.end(), requests.begin(), requests.end());
      in_flight_ += requests.size();
    }
    if (requests.size() == 1) {
      work_arrived_.notify_one();
    } else {
      work_arrived_.notify_all();
    }
  }

  std::vector<ReadCompletion> wait() override {
    std::unique_lock lock(mutex_);
    MF_CHECK(in_flight_ > 0);
    if (workers_.empty()) {
      run_one(lock);
    } else {
      read_finished_.wait(lock, [this] { return !finished_.empty(); });
    }
    std::vector<ReadCompletion> completions;
    completions.swap(finished_);
    in_flight_ -= completions.size();
    return completions;
  }

  size_t in_flight() const override {
    const std::lock_guard lock(mutex_);
    return in_flight_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      work_arrived_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      run_one(lock);
    }
  }

  /// Takes the oldest request and reads it with the lock released.
  void run_one(std::unique_lock<std::mutex>& lock) {
    const ReadRequest request = queue_.front();
    queue_.pop_front();
    lock.unlock();
    Status status = request.file->read_at(request.offset, request.into);
    lock.lock();
    finished_.push_back({request.tag, std::move(status)});
    read_finished_.notify_one();
  }

  mutable std::mutex mutex_;  // guards everything below but workers_
  std::condition_variable work_arrived_;
  std::condition_variable read_finished_;
  std::deque<ReadRequest> queue_;
  std::vector<ReadCompletion> finished_;
  size_t in_flight_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> workers_;  // written by the constructor only
};

}  // namespace

std::unique_ptr<AsyncReader> make_pread_reader(int threads) {
  return std::make_unique<PreadReader>(threads);
}

}  // namespace moeflux
