#include "backend/gpu/plan_trace.h"

#include <cstring>

#include "backend/host_buffer.h"
#include "base/format.h"

namespace moeflux::gpu {
namespace {

class TraceExecutor : public Executor {
 public:
  explicit TraceExecutor(PlanLog& log) : log_(log) {}

  void record(const Plan& plan) override {
    log_.lines.push_back(to_string(plan));
    log_.plans.push_back(plan);
  }
  void write(Buffer&, uint64_t, std::span<const std::byte> from) override {
    log_.lines.push_back(formatted("write {} bytes", from.size()));
    log_.written = {log_.written.copies + 1, log_.written.bytes + from.size()};
  }
  Status read(std::span<std::byte> to, const Buffer& from, uint64_t offset_bytes) override {
    MF_CHECK(offset_bytes + to.size() <= from.size_bytes());
    if (!to.empty()) std::memcpy(to.data(), from.host_data() + offset_bytes, to.size());
    log_.lines.push_back(formatted("read {} bytes", to.size()));
    log_.read = {log_.read.copies + 1, log_.read.bytes + to.size()};
    return {};
  }
  EventId submit() override { return EventId{++submitted_}; }
  bool has_passed(EventId) override { return true; }
  Status wait(EventId) override { return {}; }

 private:
  PlanLog& log_;
  uint64_t submitted_ = 0;
};

class TracePlatform : public Platform {
 public:
  TracePlatform(PlanLog& log, bool matrix_units) : log_(log), matrix_units_(matrix_units) {}

  std::string_view name() const override { return "plan-trace"; }
  bool has_matrix_units() const override { return matrix_units_; }
  uint32_t shared_bytes_max() const override {
    return matrix_units_ ? kMmaSharedBytesMax : kSharedBytesMax;
  }
  std::string_view description() const override { return "plan trace (computes nothing)"; }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind) override {
    return allocate_host_buffer(bytes);
  }
  uint64_t device_address(const Buffer& buffer) const override {
    return reinterpret_cast<uintptr_t>(buffer.host_data());
  }
  Result<std::unique_ptr<Executor>> create_executor() override {
    return std::unique_ptr<Executor>(std::make_unique<TraceExecutor>(log_));
  }

 private:
  PlanLog& log_;
  bool matrix_units_;
};

}  // namespace

std::unique_ptr<Platform> make_plan_trace_platform(PlanLog& log, bool matrix_units) {
  return std::make_unique<TracePlatform>(log, matrix_units);
}

}  // namespace moeflux::gpu
