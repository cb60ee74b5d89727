// The streaming store: experts are read from the checkpoint on demand into an ExpertCache bounded
// in bytes. Hits are delivered at once while misses are in flight. A lease may touch more experts
// than fit: slots of earlier waves are taken again once their compute has finished.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "backend/device.h"
#include "checkpoint/tensor_index.h"
#include "experts/cache/expert_cache.h"
#include "experts/drive/lookahead.h"
#include "experts/expert_store.h"
#include "experts/expert_table.h"
#include "experts/tiers/helped_steps.h"
#include "experts/tiers/near_placement.h"
#include "experts/tiers/slot_memory.h"
#include "experts/tiers/usage_profile.h"
#include "io/async_reader.h"

namespace moeflux {

struct StreamedExpertStoreOptions {
  /// Upper bound for slots; 0 means the least that can work, one slot.
  uint64_t capacity_bytes = 0;
  EvictionPolicyOptions eviction = {};
  /// Unknown leaves the cache unguarded.
  TokenDemand demand = {};
  /// How many slots are for experts on their way through; none: as set_staging() has it.
  std::optional<size_t> staging = {};
  /// Compare experts of a pack with their checksums when they first arrive.
  bool check_arrivals = true;
  /// Bytes of the device's own memory for experts used most, before those of the host; only of a
  /// device that copies beside.
  uint64_t near_bytes = 0;
  NearPlacementOptions placement;
  HelperOptions helper = {};
  /// Experts that earlier runs used, of the table's shape, or null; not looked at later.
  const UsageProfile* profile = nullptr;
  /// Bytes of it that are left to others where it has less than near_bytes.
  uint64_t leave_bytes = 0;
  /// Told of each part of the memory that is smaller than asked for.
  LessMemory on_less = {};
  LookaheadMode lookahead = LookaheadMode::kAuto;
};

/// Everything passed by reference must outlive the store. Fails with kResourceExhausted when a
/// non-zero bound cannot hold one expert. Slots beyond the number of experts are not allocated. A
/// device with memory of its own has fewer slots of the host's where the system refuses so many,
/// and fewer near ones or none where its own has gone.
Result<std::unique_ptr<ExpertStore>> make_streamed_expert_store(
    const ExpertTable& table, const TensorIndex& index, AsyncReader& reader, Device& device,
    const StreamedExpertStoreOptions& options);

}  // namespace moeflux
