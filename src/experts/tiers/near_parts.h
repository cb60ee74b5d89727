// Near slots on each of the devices that a model's layers are split between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/device.h"
#include "experts/expert_table.h"
#include "experts/tiers/near_before_cache.h"
#include "experts/tiers/near_slots.h"

namespace moeflux {

/// TierOptions of one device of several, of which each has its own.
struct PartTier {
  uint64_t near_bytes = 0;
  uint64_t leave_bytes = 0;
};

struct NearParts {
  std::vector<std::optional<NearSlots>> slots;  // by device; none: it has no memory for any
  std::vector<size_t> of_layer;                 // the device of each layer
};

/// Slots as allocate_near() has them, and no more on a device than its layers have experts. Empty
/// `parts`: `tier` says it all. The table must outlive them.
Result<NearParts> allocate_near_parts(const ExpertTable& table, Device& device,
                                      const TierOptions& tier, std::span<const PartTier> parts);

/// NearBeforeCache::begin_step() of all that stand before one cache; null: a device has none. In
/// step `turn`, another one is the first to take what the cache can spare.
void begin_near_step(std::span<const std::unique_ptr<NearBeforeCache>> near,
                     std::span<const StepRows> rows, Encoder& encoder, size_t turn);

}  // namespace moeflux
