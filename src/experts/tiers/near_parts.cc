#include "experts/tiers/near_parts.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "experts/tiers/usage_profile.h"

namespace moeflux {

Result<NearParts> allocate_near_parts(const ExpertTable& table, Device& device,
                                      const TierOptions& tier, std::span<const PartTier> parts) {
  const size_t slot_bytes = table.slot_bytes_max();
  NearParts near;
  std::vector<uint64_t> experts(device.num_parts());
  for (size_t l = 0; l < table.layers.size(); ++l) {
    near.of_layer.push_back(device.part_of(LayerId{static_cast<int32_t>(l)}));
    experts[near.of_layer.back()] += static_cast<uint64_t>(table.layers[l].num_experts);
  }
  near.slots.resize(experts.size());
  for (size_t i = 0; i < experts.size(); ++i) {
    TierOptions own = tier;
    if (!parts.empty()) {
      own.near_bytes = parts[i].near_bytes;
      own.leave_bytes = parts[i].leave_bytes;
    }
    own.near_bytes = std::min(own.near_bytes, experts[i] * slot_bytes);
    Device& part = device.part(i);
    MF_ASSIGN_OR_RETURN(SlotMemory memory, allocate_near(table, part, own));
    if (memory.slots == 0) continue;
    MF_CHECK(part.copies_beside());
    near.slots[i].emplace(table, std::move(memory), slot_bytes, own.placement);
    if (own.profile != nullptr) own.profile->seed(near.slots[i]->placement());
  }
  return near;
}

void begin_near_step(std::span<const std::unique_ptr<NearBeforeCache>> near,
                     std::span<const StepRows> rows, Encoder& encoder, size_t turn) {
  for (size_t i = 0; i < near.size(); ++i) {
    const size_t at = (i + turn) % near.size();
    if (near[at] == nullptr) continue;
    size_t elsewhere = 0;
    for (size_t other = 0; other < near.size(); ++other) {
      if (other != at && near[other] != nullptr) elsewhere += near[other]->num_coming();
    }
    near[at]->begin_step(rows, encoder.on_part(at), elsewhere);
  }
}

}  // namespace moeflux
