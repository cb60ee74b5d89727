#include "backend/metal/metal_executor.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "base/check.h"

namespace moeflux::gpu {
namespace {

class MetalExecutor : public Executor {
 public:
  explicit MetalExecutor(MetalGpu& gpu) : gpu_(gpu) {}

  ~MetalExecutor() override { finish_all(); }

  void record(const Plan& plan) override {
    MF_CHECK(plan.num_bindings == kernel_info(plan.kernel).bindings);
    if (plan.groups.x == 0 || plan.groups.y == 0 || plan.groups.z == 0) return;
    if (is_recording()) note(commands_->dispatch(plan));
  }

  void write(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) override {
    MF_CHECK(offset_bytes + from.size() <= to.size_bytes());
    if (!status_.ok() || from.empty()) return;
    // A copy by the GPU takes words. Writes of other sizes wait their turn on the host, and so do
    // writes with no work before them.
    if ((offset_bytes | from.size()) % sizeof(uint32_t) != 0) {
      (void)submit();
      finish_all();
    }
    if (is_idle()) {
      std::memcpy(to.host_data() + offset_bytes, from.data(), from.size());
      return;
    }
    while (!from.empty()) {
      const std::span<std::byte> room = staging_room();
      if (room.empty() || !is_recording()) return;
      const size_t piece = std::min(from.size(), room.size());
      std::memcpy(room.data(), from.data(), piece);
      commands_->copy(to, offset_bytes, *held_.back(), staging_used_, piece);
      staging_used_ += piece;
      offset_bytes += piece;
      from = from.subspan(piece);
    }
  }

  Status read(std::span<std::byte> to, const Buffer& from, uint64_t offset_bytes) override {
    MF_CHECK(offset_bytes + to.size() <= from.size_bytes());
    (void)submit();
    finish_all();
    if (status_.ok() && !to.empty()) {
      std::memcpy(to.data(), from.host_data() + offset_bytes, to.size());
    }
    return status_;
  }

  EventId submit() override {
    commit();
    return EventId{++submitted_};
  }

  bool has_passed(EventId event) override {
    while (!in_flight_.empty() && in_flight_.front().passes <= event) {
      if (!in_flight_.front().commands->has_finished()) return false;
      finish_first();
    }
    return true;
  }

  Status wait(EventId event) override {
    while (!in_flight_.empty() && in_flight_.front().passes <= event) finish_first();
    return status_;
  }

 private:
  struct InFlight {
    EventId passes{};
    std::unique_ptr<MetalCommands> commands;
    std::vector<std::unique_ptr<Buffer>> staging;  // that its copies read
  };

  void note(const Status& status) {
    if (status_.ok() && !status.ok()) status_ = status;
  }

  /// Begins a command buffer where there is none; false after an error.
  bool is_recording() {
    if (!status_.ok()) return false;
    if (commands_ != nullptr) return true;
    auto begun = gpu_.begin();
    if (!begun.ok()) {
      note(begun.error());
      return false;
    }
    commands_ = std::move(begun).value();
    return true;
  }

  bool is_idle() {
    (void)has_passed(EventId{submitted_ + 1});
    return commands_ == nullptr && in_flight_.empty();
  }

  /// Recorded work passes with the event of the next submission. After an error it never runs.
  void commit() {
    if (commands_ == nullptr) return;
    if (!status_.ok()) {
      commands_.reset();
      std::move(held_.begin(), held_.end(), std::back_inserter(spare_));
      held_.clear();
      return;
    }
    commands_->commit();
    in_flight_.push_back({EventId{submitted_ + 1}, std::move(commands_), std::move(held_)});
    commands_ = nullptr;
    held_.clear();
  }

  void finish_first() {
    InFlight first = std::move(in_flight_.front());
    in_flight_.pop_front();
    note(first.commands->wait());
    std::move(first.staging.begin(), first.staging.end(), std::back_inserter(spare_));
  }

  void finish_all() {
    while (!in_flight_.empty()) finish_first();
  }

  /// The rest of the last block held, or a block that no copy reads any more; whole words.
  std::span<std::byte> staging_room() {
    if (held_.empty() || staging_used_ == kMetalStagingBlockBytes) {
      if (spare_.empty() && blocks_ == kMetalStagingBlocks) {
        commit();
        while (spare_.empty() && !in_flight_.empty()) finish_first();
      }
      if (spare_.empty()) {
        auto block = gpu_.allocate(kMetalStagingBlockBytes);
        if (!block.ok()) {
          note(block.error());
          return {};
        }
        ++blocks_;
        spare_.push_back(std::move(block).value());
      }
      held_.push_back(std::move(spare_.back()));
      spare_.pop_back();
      staging_used_ = 0;
    }
    return {held_.back()->host_data() + staging_used_, kMetalStagingBlockBytes - staging_used_};
  }

  MetalGpu& gpu_;
  uint64_t submitted_ = 0;
  std::deque<InFlight> in_flight_;
  std::unique_ptr<MetalCommands> commands_;     // that are being recorded
  std::vector<std::unique_ptr<Buffer>> held_;   // staging that these read
  std::vector<std::unique_ptr<Buffer>> spare_;  // that nothing reads
  size_t blocks_ = 0;                           // of staging, wherever they are
  size_t staging_used_ = 0;                     // of the last of held_
  Status status_;
};

}  // namespace

Result<std::unique_ptr<Executor>> make_metal_executor(MetalGpu& gpu) {
  return std::unique_ptr<Executor>(std::make_unique<MetalExecutor>(gpu));
}

}  // namespace moeflux::gpu
