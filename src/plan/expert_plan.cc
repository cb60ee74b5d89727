#include "plan/expert_plan.h"

#include <algorithm>

#include "experts/stores/resident_expert_store.h"

namespace moeflux {
namespace {

// True when the device has memory of its own that holds every expert beside a sequence's state, and
// the user has not bounded them below that.
bool can_hold_all(const ExpertTable& experts, const DeviceMemory& device,
                  const ExpertPlanRequest& request) {
  const uint64_t bytes = resident_experts_bytes(experts);
  for (const std::optional<uint64_t>& wanted :
       {request.expert_cache_bytes, request.near_cache_bytes}) {
    if (wanted && *wanted < bytes) return false;
  }
  return bytes + device.taken_bytes <= device.free_bytes;
}

}  // namespace

ExpertPlan plan_experts(const ExpertTable& experts, const MemoryPlan& memory,
                        const std::optional<DeviceMemory>& device,
                        const ExpertPlanRequest& request) {
  if (experts.num_experts_total() == 0) return {.home = ExpertHome::kDevice};  // nothing to place
  if (device && can_hold_all(experts, *device, request)) {
    return {.home = ExpertHome::kDevice, .near_bytes = resident_experts_bytes(experts)};
  }
  TierPlan tiers;
  if (device && device->copies_beside) {
    tiers = plan_tiers(experts, device->free_bytes, device->taken_bytes, request.near_cache_bytes);
    if (!request.near_cache_bytes && request.ring_bytes.value_or(tiers.ring_bytes) == 0) {
      tiers.near_bytes -= std::min(tiers.near_bytes, request.token_bytes);
    }
    if (!memory.streams()) {
      return {.home = ExpertHome::kHostAndDevice,
              .near_bytes = tiers.near_bytes,
              .ring_bytes = request.ring_bytes.value_or(tiers.ring_bytes),
              .far_bytes = experts.num_experts_total() * experts.slot_bytes_max()};
    }
  }
  const StreamTiers split = plan_stream_tiers(tiers, memory, request.expert_cache_bytes,
                                              request.near_cache_bytes.has_value());
  return {.home = ExpertHome::kDrive, .near_bytes = split.near_bytes, .far_bytes = split.far_bytes};
}

}  // namespace moeflux
