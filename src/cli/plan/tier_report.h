// The output of `moeflux plan` for a device with memory of its own, as text and as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "plan/device_plan.h"
#include "plan/forecast.h"
#include "plan/split_plan.h"

namespace moeflux {

/// A speed and where it comes from.
struct Speed {
  double per_second = 0.0;
  std::string_view origin;  // "given", "measured", "assumed"
};

struct TierMachine {
  uint64_t device_bytes = 0;  // of the device's memory that may be used
  Speed device;               // bytes of it
  Speed bus;
  Speed memory;  // of the host
  Speed drive;
  Speed arithmetic;  // of the device
  int threads = 1;   // of the host's processor

  /// A token's weights that a thread of the host multiplies with the bits of the device: 16 take 61
  /// GB/s of Q4_K (benchmarks/results, 2026-11-28-dense).
  static constexpr double kThreadBytesPerSecond = 3.8e9;

  TierSpeeds speeds() const {
    return {device.per_second, bus.per_second,        memory.per_second,
            drive.per_second,  arithmetic.per_second, threads * kThreadBytesPerSecond};
  }
};

struct TierReport {
  const LoadedModel* model = nullptr;
  int64_t context = 0;      // tokens whose state is set aside; decode is forecast in their middle
  int64_t step_tokens = 0;  // of a prompt, evaluated together
  TierMachine machine;
  MemoryPlan memory;
  ExpertPlan experts;
  TierForecast forecast;
  std::optional<DevicePlan> split;  // of dense weights, where the host's memory has a part of them
  std::string refusal;              // where it cannot have it; empty for a model with experts
  std::optional<SplitPlan> cards;   // of several devices, which device_bytes are of

  /// Left free of the device's memory, as the engine leaves it.
  uint64_t reserve_bytes() const { return device_reserve(machine.device_bytes); }
  /// The device memory that all tokens need.
  uint64_t taken_bytes() const {
    return memory.dense_bytes + memory.state_bytes + memory.scratch_bytes + reserve_bytes();
  }
  /// The memory that all tokens need fits the device, and where experts come from the drive, the
  /// host has room for one.
  bool fits() const;
};

/// The members of the report's object.
Json tier_json(const TierReport& report);
/// Lines below the model's name.
std::string tier_text(const TierReport& report);

/// "  dense weights            1.33 GiB  note".
std::string memory_line(std::string_view what, uint64_t bytes, std::string_view note = "");
/// The line of a context that is longer than what is set aside; empty for another.
std::string context_line(const MemoryPlan& plan, int64_t planned);

}  // namespace moeflux
