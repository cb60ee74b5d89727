#include "plan/expert_plan.h"

#include <algorithm>

#include "experts/stores/resident_expert_store.h"

namespace moeflux {
namespace {

uint64_t left_of(const DeviceMemory& device) {
  return device.free_bytes > device.taken_bytes ? device.free_bytes - device.taken_bytes : 0;
}

const ExpertTable& own_experts(const DeviceMemory& device, const ExpertTable& all) {
  return device.experts != nullptr ? *device.experts : all;
}

// True when devices have memory of their own that holds every expert beside a sequence's state, and
// the user has not bounded them below that.
bool can_hold_all(const ExpertTable& experts, std::span<const DeviceMemory> devices,
                  const ExpertPlanRequest& request) {
  for (const std::optional<uint64_t>& wanted :
       {request.expert_cache_bytes, request.near_cache_bytes}) {
    if (wanted && *wanted < resident_experts_bytes(experts)) return false;
  }
  return std::ranges::all_of(devices, [&](const DeviceMemory& device) {
    const uint64_t bytes = resident_experts_bytes(own_experts(device, experts));
    return bytes + device.taken_bytes <= device.free_bytes;
  });
}

// Shares of `bytes` by weight, none above its limit as long as another is below its own.
std::vector<uint64_t> share_out(uint64_t bytes, std::span<const uint64_t> weights,
                                std::span<const uint64_t> limits) {
  std::vector<uint64_t> shares(weights.size());
  uint64_t left = bytes;
  while (left > 0) {
    double open = 0.0;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (shares[i] < limits[i]) open += static_cast<double>(weights[i]);
    }
    if (open == 0.0) break;
    const uint64_t round = left;
    for (size_t i = 0; i < shares.size(); ++i) {
      if (shares[i] >= limits[i]) continue;
      const auto part = static_cast<uint64_t>(static_cast<double>(round) *
                                              static_cast<double>(weights[i]) / open);
      const uint64_t more = std::min({part, limits[i] - shares[i], left});
      shares[i] += more;
      left -= more;
    }
    if (left == round) break;  // less than a byte each
  }
  return shares;
}

void add_up(ExpertPlan& plan) {
  plan.near_bytes = plan.ring_bytes = 0;
  for (const PartExperts& part : plan.parts) {
    plan.near_bytes += part.near_bytes;
    plan.ring_bytes += part.ring_bytes;
  }
}

// The device's memory for experts, where others are in the host's. `wanted`: of several devices,
// the share of what the user asked for.
PartExperts plan_part(const ExpertTable& own, const DeviceMemory& device, bool is_one,
                      std::optional<uint64_t> wanted, const ExpertPlanRequest& request) {
  const uint64_t all = resident_experts_bytes(own);
  if (!is_one && all <= std::min(wanted.value_or(all), left_of(device))) {
    return {.near_bytes = all, .holds_all = true};
  }
  const TierPlan tiers = plan_tiers(own, device.free_bytes, device.taken_bytes, wanted);
  PartExperts part{.near_bytes = tiers.near_bytes, .ring_bytes = tiers.ring_bytes};
  const std::optional<uint64_t>& ring = request.ring_bytes;
  if (!wanted && ring.value_or(tiers.ring_bytes) == 0) {
    part.near_bytes -= std::min(part.near_bytes, request.token_bytes);
  }
  return part;
}

// Parts of one device as before, of several by what each has free.
std::vector<PartExperts> plan_parts(const ExpertTable& experts,
                                    std::span<const DeviceMemory> devices,
                                    const ExpertPlanRequest& request) {
  std::vector<uint64_t> left;
  std::vector<uint64_t> limits;
  for (const DeviceMemory& device : devices) {
    left.push_back(left_of(device));
    limits.push_back(resident_experts_bytes(own_experts(device, experts)));
  }
  const bool is_one = devices.size() == 1;
  std::vector<uint64_t> wanted;
  if (request.near_cache_bytes && !is_one) {
    wanted = share_out(*request.near_cache_bytes, left, limits);
  }
  std::vector<PartExperts> parts;
  for (size_t i = 0; i < devices.size(); ++i) {
    std::optional<uint64_t> share = request.near_cache_bytes;
    if (share && !is_one) share = wanted[i];
    parts.push_back(
        plan_part(own_experts(devices[i], experts), devices[i], is_one, share, request));
  }
  return parts;
}

// Bytes of the experts that need a place in the host's memory.
uint64_t far_bytes(const ExpertTable& experts, std::span<const DeviceMemory> devices,
                   std::span<const PartExperts> parts) {
  uint64_t count = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].holds_all) count += own_experts(devices[i], experts).num_experts_total();
  }
  return count * experts.slot_bytes_max();
}

}  // namespace

ExpertPlan plan_experts(const ExpertTable& experts, const MemoryPlan& memory,
                        std::span<const DeviceMemory> devices, const ExpertPlanRequest& request) {
  if (experts.num_experts_total() == 0) return {.home = ExpertHome::kDevice};  // nothing to place
  ExpertPlan plan;
  if (!devices.empty() && can_hold_all(experts, devices, request)) {
    plan.home = ExpertHome::kDevice;
    for (const DeviceMemory& device : devices) {
      plan.parts.push_back(
          {.near_bytes = resident_experts_bytes(own_experts(device, experts)), .holds_all = true});
    }
    add_up(plan);
    return plan;
  }
  TierPlan tiers;
  if (!devices.empty() && devices.front().copies_beside) {
    plan.parts = plan_parts(experts, devices, request);
    const uint64_t far = far_bytes(experts, devices, plan.parts);
    const bool has_room =
        devices.size() > 1 && !request.expert_cache_bytes && far <= memory.expert_cache_bytes;
    if (has_room || !memory.streams()) {
      plan.home = ExpertHome::kHostAndDevice;
      plan.far_bytes = far;
      if (request.ring_bytes) {
        for (PartExperts& part : plan.parts) {
          if (!part.holds_all) part.ring_bytes = *request.ring_bytes;
        }
      }
      add_up(plan);
      return plan;
    }
    add_up(plan);
    tiers = {.near_bytes = plan.near_bytes, .ring_bytes = plan.ring_bytes};
  }
  // Without a ring: reads arrive in the host's memory.
  const StreamTiers split = plan_stream_tiers(tiers, memory, request.expert_cache_bytes,
                                              request.near_cache_bytes.has_value());
  plan.far_bytes = split.far_bytes;
  plan.near_bytes = split.near_bytes;
  plan.ring_bytes = 0;
  std::vector<uint64_t> rooms;
  for (const PartExperts& part : plan.parts) rooms.push_back(part.near_bytes + part.ring_bytes);
  const std::vector<uint64_t> shares = share_out(split.near_bytes, rooms, rooms);
  for (size_t i = 0; i < plan.parts.size(); ++i) plan.parts[i] = {.near_bytes = shares[i]};
  return plan;
}

ExpertPlan plan_experts(const ExpertTable& experts, const MemoryPlan& memory,
                        const std::optional<DeviceMemory>& device,
                        const ExpertPlanRequest& request) {
  return plan_experts(experts, memory,
                      device ? std::span(&*device, 1) : std::span<const DeviceMemory>(), request);
}

}  // namespace moeflux
