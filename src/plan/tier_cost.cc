#include "plan/tier_cost.h"

#include <algorithm>
#include <array>
#include <utility>

#include "experts/tiers/near_placement.h"

namespace moeflux {
namespace {

// All of these were measured on one H200 behind PCIe 5 x16 (benchmarks/results, 2026-11-23-tiers
// and -cuda-7). Elsewhere they are assumed.
//
// A decoded token of a resident model takes kLayerSeconds a layer and its bytes at 0.77 of what a
// plain read of memory reaches. So 40 layers of 36 MB took 1.57 ms, and a layer of 328 MB 127 us.
constexpr double kDeviceShare = 0.77;
// Ids of a layer that go to the host, which then launches: 14.7 us.
constexpr double kHostInLayerSeconds = 15e-6;
// Shares of what copies of megabytes reach. Fetching: 50.0 of 55.4 GB/s for eight experts of
// 1.7 MB. The ring: 51 to 55 by size. Products that read in place: 34, as scales lie in small
// pieces.
constexpr double kFetchedShare = 0.9;
constexpr double kRingShare = 0.95;
constexpr double kInPlaceShare = 0.6;

double bus_share(FarReads reads) {
  switch (reads) {
    case FarReads::kFetched:
      return kFetchedShare;
    case FarReads::kRing:
      return kRingShare;
    case FarReads::kInPlace:
      return kInPlaceShare;
  }
  __builtin_unreachable();
}

TierLimit largest_part(const TierCost& cost) {
  const std::array<std::pair<double, TierLimit>, 6> parts = {
      {{cost.drive_seconds, TierLimit::kDrive},
       {cost.memory_seconds, TierLimit::kMemory},
       {cost.bus_seconds, TierLimit::kBus},
       {cost.compute_seconds, TierLimit::kCompute},
       {cost.device_seconds, TierLimit::kDevice},
       {cost.launch_seconds, TierLimit::kLaunches}}};
  const auto* largest = &parts.front();
  for (const auto& part : parts) {
    if (part.first > largest->first) largest = &part;
  }
  return largest->second;
}

}  // namespace

TierCost cost_on_tiers(const TierStep& step, const TierSpeeds& speeds) {
  const StepWork& work = step.work;
  const double device_rate = kDeviceShare * work.device_share * speeds.device_bytes_per_second;
  const double arithmetic_rate = work.arithmetic_share * speeds.multiply_adds_per_second;
  const double far_bytes = step.found.far * work.expert_bytes;
  TierCost cost;
  cost.drive_bytes = step.found.drive * work.expert_bytes;
  const double helped_bytes = step.helped * far_bytes;
  cost.bus_bytes = (far_bytes - helped_bytes + cost.drive_bytes) * step.passes;
  if (step.experts_move) {
    cost.bus_bytes += cost.bus_bytes / static_cast<double>(kFarReadsPerMove);
  }
  cost.bus_seconds = cost.bus_bytes / (bus_share(step.far_reads) * speeds.bus_bytes_per_second);
  cost.memory_seconds =
      (cost.bus_bytes + helped_bytes + cost.drive_bytes) / speeds.memory_bytes_per_second;
  if (speeds.helper_bytes_per_second > 0.0) {
    cost.memory_seconds =
        std::max(cost.memory_seconds, helped_bytes / speeds.helper_bytes_per_second);
  }
  cost.drive_seconds = cost.drive_bytes / speeds.drive_bytes_per_second;
  const double device_bytes = work.expert_bytes - helped_bytes;
  cost.device_seconds = (work.dense_bytes + device_bytes) / device_rate;
  const double expert_compute = work.expert_multiply_adds / step.tiles_filled / arithmetic_rate;
  const double dense_compute = (work.multiply_adds - work.expert_multiply_adds) / arithmetic_rate;
  cost.compute_seconds = dense_compute + expert_compute;
  cost.launch_seconds = work.layers * kLayerSeconds;
  if (step.far_reads == FarReads::kInPlace) {
    cost.launch_seconds += work.layers * kHostInLayerSeconds;
  }
  const double of_dense = std::max(work.dense_bytes / device_rate, dense_compute);
  const double of_experts = std::max(device_bytes / device_rate, expert_compute);
  const double coming = std::max({cost.bus_seconds, cost.memory_seconds, cost.drive_seconds});
  // A token's experts are needed as soon as they are known: products follow what they wait for, and
  // a processor and the device wait for each other. A prompt's come in waves beside each other.
  const bool is_beside = step.far_reads == FarReads::kRing && step.helped == 0.0;
  cost.total_seconds = cost.launch_seconds + of_dense +
                       (is_beside ? std::max(of_experts, coming) : of_experts + coming);
  cost.limit = largest_part(cost);
  return cost;
}

}  // namespace moeflux
