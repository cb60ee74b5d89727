// The streaming store: experts are read from the checkpoint on demand into an ExpertCache bounded
// in bytes. Hits are delivered at once while misses are in flight. A lease may touch more experts
// than fit: slots of earlier waves are taken again once their compute has finished.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backend/device.h"
#include "checkpoint/tensor_index.h"
#include "experts/cache/expert_cache.h"
#include "experts/drive/lookahead.h"
#include "experts/expert_store.h"
#include "experts/expert_table.h"
#include "experts/tiers/near_parts.h"
#include "experts/tiers/near_slots.h"
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
  TierOptions tier = {};
  /// For each of several devices, instead of tier.near_bytes and tier.leave_bytes.
  std::vector<PartTier> parts = {};
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
