#include "tests/support/io/virtual_disk.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/format.h"

namespace moeflux {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

VirtualDisk::VirtualDisk(const VirtualDiskOptions& options, std::unique_ptr<AsyncReader> inner)
    : options_(options),
      scheduler_(options.scheduler),
      random_(options.seed),
      origin_seconds_(steady_seconds()),
      inner_(std::move(inner)) {
  MF_CHECK(options.bytes_per_second > 0 && options.latency_seconds >= 0);
}

double VirtualDisk::now() const {
  return options_.virtual_time ? virtual_seconds_ : steady_seconds() - origin_seconds_;
}

void VirtualDisk::advance(double seconds) {
  MF_CHECK(options_.virtual_time && seconds >= 0);
  const double end = virtual_seconds_ + seconds;
  deliver_until(end);
  virtual_seconds_ = end;
}

void VirtualDisk::submit(std::span<const ReadRequest> requests) {
  // Reads that finished in the meantime made room when they did, not when somebody looked.
  const double time = now();
  deliver_until(time);
  for (const ReadRequest& request : requests) scheduler_.add(request);
  start_commands(time);
}

size_t VirtualDisk::promote(uint64_t tag) {
  const size_t promoted = scheduler_.promote(tag);
  start_commands(now());
  return promoted;
}

std::vector<ReadCompletion> VirtualDisk::poll() {
  deliver_until(now());
  return scheduler_.take_completed();
}

std::vector<ReadCompletion> VirtualDisk::wait() {
  MF_CHECK(scheduler_.in_flight() > 0);
  deliver_until(now());
  while (!scheduler_.has_completed()) {
    MF_CHECK(!commands_.empty());
    const auto next =
        std::min_element(commands_.begin(), commands_.end(),
                         [](const Command& a, const Command& b) { return a.arrival < b.arrival; });
    const double arrival = next->arrival;
    wait_until(arrival);
    deliver_until(arrival);
  }
  return scheduler_.take_completed();
}

void VirtualDisk::wait_until(double time) {
  if (options_.virtual_time) {
    virtual_seconds_ = std::max(virtual_seconds_, time);
    return;
  }
  const double rest = time - now();
  if (rest > 0) std::this_thread::sleep_for(std::chrono::duration<double>(rest));
}

void VirtualDisk::start_commands(double time) {
  while (const std::optional<ReadChunk> chunk = scheduler_.next()) start(*chunk, time);
}

void VirtualDisk::start(const ReadChunk& chunk, double time) {
  const auto bytes = static_cast<double>(chunk.into.size());
  Command command{.chunk = chunk, .number = commands_started_++};
  command.fails = draw() < options_.failure_probability;
  const bool is_short = draw() < options_.short_read_probability;
  const double jitter = draw() * options_.jitter_seconds;
  double begin = std::max(time + options_.latency_seconds, device_free_);
  if (is_short) begin += options_.latency_seconds;
  device_free_ = begin + bytes / options_.bytes_per_second;
  command.arrival = device_free_ + jitter;
  if (inner_ != nullptr && !command.fails) {
    const ReadRequest request{.file = chunk.file,
                              .offset = chunk.offset,
                              .into = chunk.into,
                              .tag = command.number,
                              .priority = chunk.priority};
    inner_->submit({&request, 1});
  } else {
    // Nobody may take what has not arrived for what has.
    std::fill(chunk.into.begin(), chunk.into.end(), std::byte{0xA5});
  }
  commands_.push_back(std::move(command));
}

// Each arrival makes room for a command that starts at that moment and may itself be over by
// `time`.
void VirtualDisk::deliver_until(double time) {
  while (!commands_.empty()) {
    const auto next =
        std::min_element(commands_.begin(), commands_.end(),
                         [](const Command& a, const Command& b) { return a.arrival < b.arrival; });
    if (next->arrival > time) return;
    Command command = std::move(*next);
    commands_.erase(next);
    Status status = move_bytes(command);
    scheduler_.finish(command.chunk, std::move(status));
    start_commands(command.arrival);
  }
}

Status VirtualDisk::move_bytes(Command& command) {
  const ReadChunk& chunk = command.chunk;
  if (command.fails) {
    return make_error(ErrorCode::kIo,
                      "{}: reading {} bytes at offset {} failed: injected into command {}",
                      chunk.file->path(), chunk.into.size(), chunk.offset, command.number);
  }
  if (inner_ == nullptr) return chunk.file->read_at(chunk.offset, chunk.into);
  while (!command.moved) {
    for (ReadCompletion& completion : inner_->wait()) {
      const auto of = std::find_if(commands_.begin(), commands_.end(), [&](const Command& other) {
        return other.number == completion.tag;
      });
      Command& done = completion.tag == command.number ? command : *of;
      done.moved = true;
      done.moved_status = std::move(completion.status);
    }
  }
  return std::move(command.moved_status);
}

}  // namespace moeflux
