#include "tests/support/fake_metal_gpu.h"

#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format.h"

namespace moeflux::testing {
namespace {

using gpu::Executor;
using gpu::MetalCommands;
using gpu::MetalGpu;
using gpu::Plan;

class CountedBuffer : public Buffer {
 public:
  CountedBuffer(std::unique_ptr<Buffer> memory, int64_t& live)
      : memory_(std::move(memory)), live_(live) {
    ++live_;
  }
  ~CountedBuffer() override { --live_; }
  size_t size_bytes() const override { return memory_->size_bytes(); }
  std::byte* host_data() const override { return memory_->host_data(); }

 private:
  std::unique_ptr<Buffer> memory_;
  int64_t& live_;
};

/// Command buffers in the order of their commits.
class Queue {
 public:
  using Steps = std::vector<std::function<void()>>;

  Queue(std::unique_ptr<Executor> executor, FakeMetalLog& log)
      : executor_(std::move(executor)), log_(log) {}

  Executor& executor() { return *executor_; }
  FakeMetalLog& log() { return log_; }

  int commit(Steps steps) {
    const std::scoped_lock lock(mutex_);
    committed_.push_back(std::move(steps));
    return ++log_.commits;
  }
  /// Up to number `last`; what went wrong in it.
  Status run(int last) {
    const std::scoped_lock lock(mutex_);
    while (log_.ran < last) {
      for (const auto& step : committed_.front()) step();
      committed_.pop_front();
      if (++log_.ran == log_.fails_at) failed_ = true;
    }
    if (failed_ && last == log_.fails_at) {
      return make_error(ErrorCode::kIo, "command buffer {} failed", last);
    }
    return executor_->wait(executor_->submit());
  }

 private:
  std::unique_ptr<Executor> executor_;
  FakeMetalLog& log_;
  std::mutex mutex_;
  std::deque<Steps> committed_;  // and not run
  bool failed_ = false;
};

class FakeCommands : public MetalCommands {
 public:
  explicit FakeCommands(Queue& queue) : queue_(queue) {}

  Status dispatch(const Plan& plan) override {
    MF_CHECK(number_ == 0);
    MF_CHECK(plan.groups.x > 0 && plan.groups.y > 0 && plan.groups.z > 0);
    steps_.emplace_back([this_queue = &queue_, plan] {
      this_queue->executor().record(plan);
      (void)this_queue->executor().submit();
    });
    return {};
  }
  void copy(Buffer& to, uint64_t to_offset, const Buffer& from, uint64_t from_offset,
            uint64_t bytes) override {
    MF_CHECK(number_ == 0);
    MF_CHECK((to_offset | from_offset | bytes) % 4 == 0);
    MF_CHECK(to_offset + bytes <= to.size_bytes() && from_offset + bytes <= from.size_bytes());
    ++queue_.log().copies;
    steps_.emplace_back([to = to.host_data() + to_offset, from = from.host_data() + from_offset,
                         bytes] { std::memcpy(to, from, bytes); });
  }
  void commit() override {
    MF_CHECK(number_ == 0);
    number_ = queue_.commit(std::move(steps_));
  }
  bool has_finished() override {
    MF_CHECK(number_ != 0);
    if (++looks_ < 2) return false;
    (void)queue_.run(number_);
    return true;
  }
  Status wait() override {
    MF_CHECK(number_ != 0);
    return queue_.run(number_);
  }

 private:
  Queue& queue_;
  Queue::Steps steps_;
  int number_ = 0;  // of the commit
  int looks_ = 0;
};

class FakeMetalGpu : public MetalGpu {
 public:
  FakeMetalGpu(const gpu::EmulatorOptions& options, FakeMetalLog* log)
      : platform_(gpu::make_emulator_platform(options)),
        log_(log == nullptr ? own_log_ : *log),
        queue_(platform_->create_executor().value(), log_) {}

  std::string_view name() const override { return "emulator"; }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override {
    MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> memory,
                        platform_->allocate(bytes, MemoryKind::kDevice));
    return std::unique_ptr<Buffer>(
        std::make_unique<CountedBuffer>(std::move(memory), log_.live_buffers));
  }
  uint64_t address(const Buffer& buffer) const override {
    return platform_->device_address(buffer);
  }
  Result<std::unique_ptr<MetalCommands>> begin() override {
    return std::unique_ptr<MetalCommands>(std::make_unique<FakeCommands>(queue_));
  }

 private:
  std::unique_ptr<gpu::Platform> platform_;
  FakeMetalLog own_log_;
  FakeMetalLog& log_;
  Queue queue_;
};

}  // namespace

std::unique_ptr<gpu::MetalGpu> make_fake_metal_gpu(const gpu::EmulatorOptions& options,
                                                   FakeMetalLog* log) {
  return std::make_unique<FakeMetalGpu>(options, log);
}

}  // namespace moeflux::testing
