#include "backend/gpu/emulator/emulator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <vector>

#include "backend/gpu/emulator/kernel_entries.h"
#include "backend/gpu/emulator/machine.h"
#include "backend/gpu/launch/memory_limit.h"
#include "backend/host_buffer.h"
#include "base/format.h"

namespace moeflux::gpu {

/// Allocations that are alive in the host's memory.
class EmulatedHost {
 public:
  std::mutex mutex;  // of these, and of those of the emulators that reach them
  emulator::Allocations allocations;
};

std::shared_ptr<EmulatedHost> make_emulated_host() { return std::make_shared<EmulatedHost>(); }

namespace {

class EmulatorBuffer : public Buffer {
 public:
  EmulatorBuffer(EmulatedHost& machine, emulator::Allocations& memory, std::unique_ptr<Buffer> host,
                 size_t bytes, std::array<MemoryLimit::Share, 2> shares)
      : machine_(machine),
        memory_(memory),
        host_(std::move(host)),
        bytes_(bytes),
        shares_(std::move(shares)) {
    const std::scoped_lock lock(machine_.mutex);
    memory_[begin()] = begin() + bytes_;
  }
  ~EmulatorBuffer() override {
    const std::scoped_lock lock(machine_.mutex);
    memory_.erase(begin());
  }
  size_t size_bytes() const override { return bytes_; }
  std::byte* host_data() const override { return host_->host_data(); }
  const emulator::Allocations& memory() const { return memory_; }

 private:
  uintptr_t begin() const { return reinterpret_cast<uintptr_t>(host_->host_data()); }

  EmulatedHost& machine_;
  emulator::Allocations& memory_;
  std::unique_ptr<Buffer> host_;
  size_t bytes_;
  std::array<MemoryLimit::Share, 2> shares_;
};

/// The memory that kernels of an emulator reach. Shared by the platform and its executors.
struct Reach {
  explicit Reach(std::shared_ptr<EmulatedHost> with)
      : host(std::move(with)), all{&own, &host->allocations} {}
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;

  emulator::Allocations own;
  std::shared_ptr<EmulatedHost> host;
  std::vector<const emulator::Allocations*> all;  // its own, the host's, and of other emulators
};

/// Queues until submit(), as a GPU would; then runs everything at once.
class EmulatorExecutor : public Executor {
 public:
  EmulatorExecutor(Reach& reach, const EmulatorOptions& options)
      : reach_(reach),
        seed_(options.seed),
        copy_random_(options.copy_seed),
        copies_at_once_(options.copies_at_once),
        failing_copy_(options.failing_copy) {
    constexpr size_t kStepsUsual = 256;
    queue_.reserve(kStepsUsual);
    bytes_.reserve(size_t{64} << 10);
  }

  void record(const Plan& plan) override { queue_.push_back({plan, 0, 0, false, 0}); }

  void write(Buffer& to, uint64_t offset_bytes, std::span<const std::byte> from) override {
    Step step;
    step.plan.bindings[0] = {&to, offset_bytes, from.size(), Access::kWrite};
    step.bytes_begin = bytes_.size();
    step.bytes = from.size();
    bytes_.insert(bytes_.end(), from.begin(), from.end());
    step.is_write = true;
    queue_.push_back(step);
  }

  Status read(std::span<std::byte> to, const Buffer& from, uint64_t offset_bytes) override {
    MF_RETURN_IF_ERROR(wait(submit()));
    MF_CHECK(offset_bytes + to.size() <= from.size_bytes());
    status_ = touch("a read of the host", EventId{submitted_}, from, offset_bytes, to.size(),
                    /*writes=*/false);
    MF_RETURN_IF_ERROR(status_);
    if (!to.empty()) std::memcpy(to.data(), from.host_data() + offset_bytes, to.size());
    return {};
  }

  void take(Buffer& to, uint64_t to_offset, Executor& other, const Buffer& from,
            uint64_t from_offset, size_t bytes) override {
    MF_CHECK(from_offset + bytes <= from.size_bytes());
    await(other);
    write(to, to_offset, {from.host_data() + from_offset, bytes});
  }
  void await(Executor& other) override { (void)other.wait(other.submit()); }  // its error sticks

  EventId submit() override {
    for (const Step& step : queue_) {
      copy_some();
      if (step.awaits != 0) finish_copies(CopyId{step.awaits});
      watch_.order(CopyId{std::max(step.awaits, step.has_seen)});
      if (!status_.ok()) break;
      if (step.awaits != 0 || step.has_seen != 0) continue;
      status_ = step.is_write ? copy(step) : run(step.plan);
    }
    queue_.clear();
    bytes_.clear();
    return EventId{++submitted_};
  }
  CopyId copy_beside(std::span<const BufferCopy> copies, EventId after) override {
    MF_CHECK(static_cast<uint64_t>(after) <= submitted_);
    const CopyId id{++asked_copies_};
    for (const BufferCopy& c : copies) {
      MF_CHECK(c.to_offset + c.bytes <= c.to->size_bytes());
      MF_CHECK(c.from_offset + c.bytes <= c.from->size_bytes());
      waiting_copies_.push_back({id, c});
      const Status asked = watch_.ask(id, c, after);
      if (status_.ok()) status_ = asked;
      // A kernel that reads the place before it has waited gets NaN.
      std::memset(c.to->host_data() + c.to_offset, 0xff, c.bytes);
    }
    copy_some();
    return id;
  }
  void await_copies(CopyId last) override {
    Step step;
    step.awaits = static_cast<uint64_t>(last);
    queue_.push_back(step);
  }
  bool has_copied(CopyId last) override {
    copy_some();
    if (!status_.ok()) return true;
    if (!waiting_copies_.empty() && waiting_copies_.front().id <= last) return false;
    Step step;  // earlier records may run before
    step.has_seen = static_cast<uint64_t>(last);
    queue_.push_back(step);
    return true;
  }
  bool has_passed(EventId event) override { return static_cast<uint64_t>(event) <= submitted_; }
  Status wait(EventId) override { return status_; }

 private:
  struct Step {
    Plan plan;
    size_t bytes_begin = 0;
    size_t bytes = 0;
    bool is_write = false;
    // Copies up to this one; 0 of both: a launch or a write.
    uint64_t awaits = 0;
    uint64_t has_seen = 0;  // by the host, to be done
  };
  struct WaitingCopy {
    CopyId id{};
    BufferCopy copy;
  };

  /// As many of the copies as the seed says: few, so that most are late.
  void copy_some() {
    while (!waiting_copies_.empty() && (copies_at_once_ || copy_random_() % 8 == 0)) copy_next();
  }
  void finish_copies(CopyId last) {
    while (!waiting_copies_.empty() && waiting_copies_.front().id <= last) copy_next();
  }
  void copy_next() {
    const BufferCopy c = waiting_copies_.front().copy;
    waiting_copies_.pop_front();
    if (++made_copies_ == failing_copy_) {
      status_ = make_error(ErrorCode::kIo, "copy {} fails as asked for", made_copies_);
    }
    std::memcpy(c.to->host_data() + c.to_offset, c.from->host_data() + c.from_offset, c.bytes);
  }

  Status copy(const Step& step) {
    const Binding& to = step.plan.bindings[0];
    MF_CHECK(to.offset_bytes + step.bytes <= to.buffer->size_bytes());
    if (step.bytes == 0) return {};
    MF_RETURN_IF_ERROR(touch("a write of the host", EventId{submitted_ + 1}, *to.buffer,
                             to.offset_bytes, step.bytes, /*writes=*/true));
    std::memcpy(to.buffer->host_data() + to.offset_bytes, bytes_.data() + step.bytes_begin,
                step.bytes);
    return {};
  }

  /// An access of the host's in order with the launches.
  Status touch(std::string_view name, EventId event, const Buffer& buffer, uint64_t offset,
               size_t bytes, bool writes) {
    emulator::WatchedMemory* const memory = watch_.find(buffer.host_data());
    if (memory == nullptr || bytes == 0) return {};
    watch_.begin_work(name, event);
    const uintptr_t address = reinterpret_cast<uintptr_t>(buffer.host_data()) + offset;
    if (watch_.touch(*memory, address, bytes, writes)) return {};
    return make_error(ErrorCode::kFailedPrecondition, "{}: {}", name,
                      watch_.report(*memory, address, writes));
  }

  Status run(const Plan& plan) {
    emulator::Launch launch;
    launch.name = kernel_info(plan.kernel).name;
    launch.reads_early = reads_early(plan.kernel);
    launch.entry = emulator::kernel_entry(plan.kernel);
    launch.plan = &plan;
    launch.allocations = reach_.all;
    launch.copies = &watch_;
    watch_.begin_work(launch.name, EventId{submitted_ + 1});
    launch.seed = seed_ == 0 ? 0 : seed_ + ++launches_;
    MF_CHECK(plan.num_bindings == kernel_info(plan.kernel).bindings);
    for (uint32_t i = 0; i < plan.num_bindings; ++i) {
      const Binding& binding = plan.bindings[i];
      launch.bindings[i].index = static_cast<int32_t>(i);
      launch.bindings[i].awaits = true;
      if (binding.buffer == nullptr) continue;
      // Tests may bind buffers of their own.
      if (const auto* made = dynamic_cast<const EmulatorBuffer*>(binding.buffer)) {
        MF_CHECK(std::ranges::find(reach_.all, &made->memory()) != reach_.all.end());
      }
      MF_CHECK(binding.offset_bytes + binding.size_bytes <= binding.buffer->size_bytes());
      std::byte* const begin = binding.buffer->host_data() + binding.offset_bytes;
      launch.bindings[i].begin = begin;
      launch.bindings[i].end = begin + binding.size_bytes;
      launch.bindings[i].watched = watch_.find(binding.buffer->host_data());
      // Not a number in any float type; a kernel that leaves some of it shows.
      if (binding.access == Access::kOverwrite) std::memset(begin, 0xff, binding.size_bytes);
    }
    const std::scoped_lock lock(reach_.host->mutex);
    return machine_.run(launch);
  }

  Reach& reach_;
  uint64_t seed_;
  uint64_t launches_ = 0;
  uint64_t submitted_ = 0;
  std::vector<Step> queue_;
  std::vector<std::byte> bytes_;
  emulator::Machine machine_;
  std::minstd_rand copy_random_;
  bool copies_at_once_;
  uint64_t failing_copy_;
  uint64_t asked_copies_ = 0;
  uint64_t made_copies_ = 0;
  std::deque<WaitingCopy> waiting_copies_;
  emulator::CopyWatch watch_;
  Status status_;
};

class EmulatorPlatform : public Platform {
 public:
  explicit EmulatorPlatform(const EmulatorOptions& options)
      : options_(options),
        limit_(options.memory_bytes),
        own_(options.own_bytes_max),
        host_(options.host_bytes_max),
        reach_(options.host ? options.host : make_emulated_host()) {}

  std::string_view name() const override { return "emulator"; }
  bool has_matrix_units() const override { return options_.matrix_units; }
  bool multiplies_in_teams() const override { return options_.matrix_units; }
  uint32_t shared_bytes_max() const override { return options_.shared_bytes; }
  uint32_t cores() const override { return options_.cores; }
  bool copies_beside() const override { return true; }
  uint64_t workspace_bytes_max() const override { return options_.workspace_bytes; }
  std::string_view description() const override { return "emulator (GPU kernels on the host)"; }
  std::string_view bits_key() const override {
    return options_.matrix_units ? "emulator with matrix units" : "emulator";
  }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes, MemoryKind kind) override {
    std::array<MemoryLimit::Share, 2> shares;
    if (kind == MemoryKind::kDevice) {
      MF_ASSIGN_OR_RETURN(shares[0], limit_.take(bytes));
      MF_ASSIGN_OR_RETURN(shares[1], own_.take(bytes));
    } else {
      MF_ASSIGN_OR_RETURN(shares[0], host_.take(bytes));
    }
    MF_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> host, allocate_host_buffer(bytes));
    return std::unique_ptr<Buffer>(std::make_unique<EmulatorBuffer>(
        *reach_.host, kind == MemoryKind::kDevice ? reach_.own : reach_.host->allocations,
        std::move(host), bytes, std::move(shares)));
  }
  uint64_t device_address(const Buffer& buffer) const override {
    return reinterpret_cast<uintptr_t>(buffer.host_data());
  }
  std::optional<uint64_t> free_bytes() const override { return limit_.bytes_left(); }
  double memory_bytes_per_second() const override { return options_.memory_bytes_per_second; }
  // Emulators that share a machine have a bus between them.
  Status reach(const Platform& other) override {
    const Reach& theirs = static_cast<const EmulatorPlatform&>(other).reach_;
    if (theirs.host != reach_.host) return Platform::reach(other);
    if (std::ranges::find(reach_.all, &theirs.own) == reach_.all.end()) {
      reach_.all.push_back(&theirs.own);
    }
    return {};
  }
  Result<std::unique_ptr<Executor>> create_executor() override {
    return std::unique_ptr<Executor>(std::make_unique<EmulatorExecutor>(reach_, options_));
  }

 private:
  EmulatorOptions options_;
  MemoryLimit limit_;
  MemoryLimit own_;
  MemoryLimit host_;
  Reach reach_;
};

}  // namespace

Status check_emulator_runs() {
  if (emulator::has_kernel_entries()) return {};
  return make_error(ErrorCode::kUnsupported,
                    "emulator: this build has no emulator (configure with -DMOEFLUX_EMULATOR=ON)");
}

std::unique_ptr<Platform> make_emulator_platform(const EmulatorOptions& options) {
  return std::make_unique<EmulatorPlatform>(options);
}

}  // namespace moeflux::gpu
