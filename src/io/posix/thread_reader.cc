// AsyncReader over blocking reads: a queue and a few threads. The portable path, and the fallback
// of every other.
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "io/blocking_source.h"

namespace moeflux {
namespace {

class ThreadReader final : public AsyncReader {
 public:
  ThreadReader(const ThreadReaderOptions& options, std::unique_ptr<BlockingSource> source)
      : name_(options.name), source_(std::move(source)), scheduler_(options.scheduler) {
    workers_.reserve(static_cast<size_t>(options.threads));
    // A system out of threads slows us down but does not stop us: without any, wait() reads.
    try {
      for (int i = 0; i < options.threads; ++i) workers_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
    }
  }
  ThreadReader(const ThreadReader&) = delete;
  ThreadReader& operator=(const ThreadReader&) = delete;

  ~ThreadReader() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      scheduler_.abandon();
    }
    work_arrived_.notify_all();
    for (std::thread& worker : workers_) worker.join();  // a chunk that has begun ends first
  }

  std::string_view name() const override { return name_; }

  void submit(std::span<const ReadRequest> requests) override {
    {
      const std::lock_guard lock(mutex_);
      scheduler_.reserve(requests.size());
      for (const ReadRequest& request : requests) scheduler_.add(request);
    }
    work_arrived_.notify_all();
  }

  std::vector<ReadCompletion> wait() override {
    std::unique_lock lock(mutex_);
    MF_CHECK(scheduler_.in_flight() > 0);
    while (!scheduler_.has_completed()) {
      if (workers_.empty()) {
        MF_CHECK(run_one(lock, own_bounce_));
      } else {
        read_finished_.wait(lock);
      }
    }
    return scheduler_.take_completed();
  }

  std::vector<ReadCompletion> poll() override {
    std::unique_lock lock(mutex_);
    if (workers_.empty() && !scheduler_.has_completed()) run_one(lock, own_bounce_);
    return scheduler_.take_completed();
  }

  size_t in_flight() const override {
    const std::lock_guard lock(mutex_);
    return scheduler_.in_flight();
  }

  size_t promote(uint64_t tag) override {
    size_t promoted = 0;
    {
      const std::lock_guard lock(mutex_);
      promoted = scheduler_.promote(tag);
    }
    work_arrived_.notify_all();  // demand may use depth that speculation may not
    return promoted;
  }

  size_t cancel(uint64_t tag) override {
    const std::lock_guard lock(mutex_);
    return scheduler_.cancel(tag);
  }

 private:
  void run() {
    BounceBuffer bounce;
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (!run_one(lock, bounce)) work_arrived_.wait(lock);
    }
  }

  /// No exception leaves a thread; the message fits into a string without memory of its own.
  Status read(const ReadChunk& chunk, BounceBuffer& bounce) {
    try {
      return source_->read(chunk, bounce);
    } catch (const std::bad_alloc&) {
      return Error(ErrorCode::kResourceExhausted, "out of memory");
    }
  }

  /// Reads the next chunk with the lock released. False: there is none to start.
  bool run_one(std::unique_lock<std::mutex>& lock, BounceBuffer& bounce) {
    const std::optional<ReadChunk> chunk = scheduler_.next();
    if (!chunk) return false;
    lock.unlock();
    Status status = read(*chunk, bounce);
    lock.lock();
    scheduler_.finish(*chunk, std::move(status));
    if (scheduler_.has_completed()) read_finished_.notify_one();
    return true;
  }

  const std::string_view name_;
  const std::unique_ptr<BlockingSource> source_;  // shared by the threads
  mutable std::mutex mutex_;                      // guards scheduler_ and stopping_
  std::condition_variable work_arrived_;
  std::condition_variable read_finished_;
  ReadScheduler scheduler_;
  bool stopping_ = false;
  BounceBuffer own_bounce_;           // of the thread that waits
  std::vector<std::thread> workers_;  // written by the constructor only
};

}  // namespace

std::unique_ptr<AsyncReader> make_thread_reader(const ThreadReaderOptions& options,
                                                std::unique_ptr<BlockingSource> source) {
  MF_CHECK(options.threads >= 0);
  return std::make_unique<ThreadReader>(options, std::move(source));
}

}  // namespace moeflux
