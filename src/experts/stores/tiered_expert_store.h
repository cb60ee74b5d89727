// The store of a device with memory of its own that does not hold all experts, on a machine whose
// memory does. All lie in memory of the host that the device reads over its bus; those used most
// lie in slots of the device's memory as well. Kernels find each by a table of addresses, so the
// host has no part in a token: what routers chose it learns a step later, and moves experts between
// steps while the device computes. A helper may compute those in the host's memory instead; then
// the host reads the ids. Where an expert lies, and who computes it, changes no bits.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/device.h"
#include "checkpoint/tensor_index.h"
#include "experts/expert_store.h"
#include "experts/expert_table.h"
#include "experts/tiers/near_slots.h"
#include "io/async_reader.h"

namespace moeflux {

/// The ring through which a prompt's experts go has slots in parts of ring_part() experts, at most
/// so many. As long as a layer's other work lasts no slot becomes free, so these are enough for a
/// layer of 256 experts: the bus then never waits.
constexpr size_t kRingPartsMax = 16;
/// It is divided into so many waves, if each has a part at least: one computes, others arrive. Few
/// and large ones, as each takes a prompt of 4096 tokens some 0.2 ms of an H100's time beside its
/// products.
constexpr size_t kRingWaves = 4;
/// A prompt goes through it when its choices are so many times the layer's experts: then it needs
/// nearly all of them, and of each more tokens than one read in place serves.
constexpr int64_t kRingChoices = 2;
/// Experts of a part, which is the smallest wave.
size_t ring_part(const ExpertTable& table);

struct TieredExpertStoreOptions {
  TierOptions tier = {};
  /// Bytes of the device's memory through which a prompt's experts go; less than two parts: prompts
  /// read them where they lie, and there is room for those of one token beside these bytes.
  uint64_t ring_bytes = 0;
  int64_t step_tokens_max = 0;
  int64_t experts_per_token_max = 0;
  /// Bytes read for it, for its statistics.
  uint64_t bytes_read = 0;
};

/// The longest step that a helper is of use in: longer ones go through the ring.
int64_t helped_rows_max(const ExpertTable& table, int64_t experts_per_token);

/// A helper as this store takes it: experts in the host's memory can be divided.
HelpedSteps make_tiered_help(const HelperOptions& helper);

/// Memory of the host for every expert, which the device reads. Fails with kResourceExhausted where
/// the system does not let it have so much.
Result<std::unique_ptr<Buffer>> allocate_far_experts(const ExpertTable& table, Device& device);

/// Reads every expert into `far`, of allocate_far_experts(); the reader is free again afterwards.
/// Fails with kIo when a read fails, with kCorruption when one of a pack does not have its
/// checksum, if those are checked.
Status load_far_experts(const ExpertTable& table, const TensorIndex& index, AsyncReader& reader,
                        Buffer& far, bool check_arrivals);

/// Table, device, which copies beside, and `far`, of load_far_experts(), must outlive the store.
/// Where the device has less memory than near_bytes and ring_bytes, it has fewer near slots or
/// none, and fewer waves or none. Fails with kResourceExhausted without room for one token's
/// experts. Only while routes are observed, or a helper takes part, does a lease wait for the
/// device.
Result<std::unique_ptr<ExpertStore>> make_tiered_expert_store(
    const ExpertTable& table, Device& device, Buffer& far, const TieredExpertStoreOptions& options);

}  // namespace moeflux
