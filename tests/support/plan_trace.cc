#include "tests/support/plan_trace.h"

#include <cstring>

#include "backend/gpu/launch/launch_runs.h"
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
    if (plan.groups.x == 0 || plan.groups.y == 0 || plan.groups.z == 0) return;
    if (runs_.keep(launch_of(plan, [](const Buffer& buffer) { return address(buffer); }))) launch();
  }
  void write(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) override {
    flush();
    write_ahead(to, offset_bytes, from);
  }
  void write_ahead(Buffer&, uint64_t, std::span<const std::byte> from) override {
    log_.lines.push_back(formatted("write {} bytes", from.size()));
    log_.written = {log_.written.copies + 1, log_.written.bytes + from.size()};
  }
  Status read(std::span<std::byte> to, const Buffer& from, uint64_t offset_bytes) override {
    MF_CHECK(offset_bytes + to.size() <= from.size_bytes());
    flush();
    if (!to.empty()) std::memcpy(to.data(), from.host_data() + offset_bytes, to.size());
    log_.lines.push_back(formatted("read {} bytes", to.size()));
    log_.read = {log_.read.copies + 1, log_.read.bytes + to.size()};
    return {};
  }
  void take(Buffer&, uint64_t, Executor& other, const Buffer&, uint64_t, size_t bytes) override {
    await(other);
    log_.lines.push_back(formatted("take {} bytes", bytes));
  }
  void await(Executor& other) override {
    auto& theirs = static_cast<TraceExecutor&>(other);
    flush();
    runs_.begin_behind(theirs.runs_);
    theirs.flush();
  }
  EventId submit() override {
    flush();
    return EventId{++submitted_};
  }
  bool has_passed(EventId) override { return true; }
  Status wait(EventId) override {
    ++log_.waits;
    return {};
  }

 private:
  struct Graph {};

  static std::byte* address(const Buffer& buffer) {
    return const_cast<std::byte*>(buffer.host_data());
  }
  void flush() {
    runs_.begin();
    launch();
  }
  void launch() {
    if (runs_.kept().empty()) return;
    log_.runs.push_back(runs_.kept().size());
    if (auto* const run = runs_.find(); run != nullptr) {
      runs_.update(*run, [](size_t) {});
      if (!run->graph) ++log_.graphs;
      run->graph.emplace();
    } else {
      log_.single_launches += runs_.kept().size();
      runs_.add([](const auto&) {});
    }
    runs_.kept().clear();
  }

  PlanLog& log_;
  LaunchRuns<Graph> runs_;
  uint64_t submitted_ = 0;
};

class TracePlatform : public Platform {
 public:
  TracePlatform(PlanLog& log, bool matrix_units, std::optional<uint64_t> free_bytes)
      : log_(log), matrix_units_(matrix_units), free_bytes_(free_bytes) {}

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
  std::optional<uint64_t> free_bytes() const override { return free_bytes_; }
  Result<std::unique_ptr<Executor>> create_executor() override {
    return std::unique_ptr<Executor>(std::make_unique<TraceExecutor>(log_));
  }

 private:
  PlanLog& log_;
  bool matrix_units_;
  std::optional<uint64_t> free_bytes_;
};

}  // namespace

std::unique_ptr<Platform> make_plan_trace_platform(PlanLog& log, bool matrix_units,
                                                   std::optional<uint64_t> free_bytes) {
  return std::make_unique<TracePlatform>(log, matrix_units, free_bytes);
}

}  // namespace moeflux::gpu
