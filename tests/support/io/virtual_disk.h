// VirtualDisk: an AsyncReader that delivers as a drive of a given latency and bandwidth would. In
// real time, to see what overlaps with what; in virtual time, to test it without waiting.
//
// The drive takes commands in the order they start, up to its depth, and each arrives
//   max(start + latency, end of the command before) + bytes / bandwidth.
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "io/read_scheduler.h"

namespace moeflux {

struct VirtualDiskOptions {
  double latency_seconds = 100e-6;
  double bytes_per_second = 2e9;
  ReadSchedulerOptions scheduler;  // chunks, depth and priorities, as of any reader
  /// True: seconds pass only in wait(), which jumps to the next arrival, and in advance(). False:
  /// the steady clock.
  bool virtual_time = false;

  // Faults, drawn from the seed for each command in the order of starts.
  uint64_t seed = 1;
  double failure_probability = 0;  // kIo
  /// A short read: what is missing costs another command's time.
  double short_read_probability = 0;
  /// Up to this much is added to a command's arrival, without holding up the ones behind it: so
  /// commands overtake each other.
  double jitter_seconds = 0;
};

class VirtualDisk final : public AsyncReader {
 public:
  /// Reads from the requests' files on arrival; at its start through `inner`, if there is one, so
  /// that the bytes move outside of this thread.
  explicit VirtualDisk(const VirtualDiskOptions& options,
                       std::unique_ptr<AsyncReader> inner = nullptr);
  ~VirtualDisk() override = default;

  std::string_view name() const override { return "virtual"; }
  void submit(std::span<const ReadRequest> requests) override;
  std::vector<ReadCompletion> wait() override;
  std::vector<ReadCompletion> poll() override;
  size_t in_flight() const override { return scheduler_.in_flight(); }
  size_t promote(uint64_t tag) override;
  size_t cancel(uint64_t tag) override { return scheduler_.cancel(tag); }

  /// Seconds since the disk was made.
  double now() const;
  /// Virtual time only: somebody computed for that long.
  void advance(double seconds);

 private:
  struct Command {
    ReadChunk chunk;
    uint64_t number = 0;
    double arrival = 0;
    bool fails = false;
    bool moved = false;  // inner has read it
    Status moved_status;
  };

  double draw() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  void start_commands(double time);
  void start(const ReadChunk& chunk, double time);
  void deliver_until(double time);
  void wait_until(double time);
  Status move_bytes(Command& command);

  VirtualDiskOptions options_;
  ReadScheduler scheduler_;
  std::mt19937_64 random_;
  double origin_seconds_ = 0;   // of the steady clock
  double virtual_seconds_ = 0;  // with virtual_time
  double device_free_ = 0;      // when the last command's bytes have passed
  uint64_t commands_started_ = 0;
  std::vector<Command> commands_;       // started, not arrived
  std::unique_ptr<AsyncReader> inner_;  // last: destroyed first
};

}  // namespace moeflux
