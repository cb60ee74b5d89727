// Decides where a model's experts lie while it runs: in a device's own memory, in the host's, or
// partly on the drive. The engine opens its store by it, and `moeflux plan` predicts by it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/memory_plan.h"

namespace moeflux {

enum class ExpertHome : uint8_t {
  kDevice,         // all in the device's own memory
  kHostAndDevice,  // all in the host's, those used most in the device's as well
  kDrive,          // a cache in the host's memory, behind one in the device's if it has any
};

/// A device's own memory, as it is when weights, scratch and tables have been loaded.
struct DeviceMemory {
  uint64_t free_bytes = 0;
  uint64_t taken_bytes = 0;    // of these, by a sequence's state and a reserve
  bool copies_beside = false;  // Device::copies_beside()
  /// The experts of its layers; null: all.
  const ExpertTable* experts = nullptr;
};

/// The sizes that the user asked for; none: the free memory decides.
struct ExpertPlanRequest {
  std::optional<uint64_t> expert_cache_bytes;
  std::optional<uint64_t> near_cache_bytes;
  std::optional<uint64_t> ring_bytes;
  uint64_t token_bytes = 0;  // of one token's experts in a layer: room for them without a ring
};

/// The experts of one of several devices, or of the only one.
struct PartExperts {
  uint64_t near_bytes = 0;  // of its memory, for experts that stay
  uint64_t ring_bytes = 0;  // of it, that a prompt's go through
  bool holds_all = false;   // of its layers
};

struct ExpertPlan {
  ExpertHome home = ExpertHome::kDrive;
  // Sums of all parts.
  uint64_t near_bytes = 0;
  uint64_t ring_bytes = 0;
  uint64_t far_bytes = 0;               // of the host's memory
  std::vector<PartExperts> parts = {};  // by device; none without memory of its own
};

/// `devices` share one model; none: it works in the host's memory. A bound that the user asked for
/// is shared out by what each has free.
ExpertPlan plan_experts(const ExpertTable& experts, const MemoryPlan& memory,
                        std::span<const DeviceMemory> devices, const ExpertPlanRequest& request);
/// The same for one, or none.
ExpertPlan plan_experts(const ExpertTable& experts, const MemoryPlan& memory,
                        const std::optional<DeviceMemory>& device,
                        const ExpertPlanRequest& request);

}  // namespace moeflux
