// Slots of a device's own memory for experts used most, and the copies that bring them there beside
// the work. NearPlacement says who; whoever holds the others in the host's memory says where from.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/encoder.h"
#include "base/step_rows.h"
#include "experts/cache/expert_cache.h"
#include "experts/expert_store.h"
#include "experts/expert_table.h"
#include "experts/tiers/near_placement.h"
#include "experts/tiers/slot_memory.h"

namespace moeflux {

/// Thread-compatible. Objects that its pins refer to must outlive it.
class NearSlots {
 public:
  /// Where an expert is copied from; the pin, if there is one, holds it until the copy is done.
  struct Source {
    const Buffer* buffer = nullptr;
    uint64_t offset = 0;
    ExpertPin pin = {};
  };

  /// `memory` has slots of slot_bytes. The table must outlive it.
  NearSlots(const ExpertTable& table, SlotMemory memory, size_t slot_bytes,
            const NearPlacementOptions& options);

  NearPlacement& placement() { return placement_; }
  const NearPlacement& placement() const { return placement_; }
  /// An expert that is there; nullopt for others.
  std::optional<ExpertWeights> find(ExpertKey key) const;
  /// An expert in its slot, there or on its way.
  ExpertWeights at(ExpertKey key, NearPlacement::Slot slot) const;
  /// Brings an expert into its slot at once: while a device is opened.
  Status upload(Device& device, ExpertKey key, NearPlacement::Slot slot, const Source& source);

  /// The reader of experts that are not near: the device, over the bus, or a helper.
  enum class FarReader : uint8_t { kDevice, kHelper };
  /// Choices of `tokens` tokens in a layer: for placement(), and of decode in statistics.
  void note(LayerId layer, StepPhase phase, std::span<const int32_t> experts, int64_t tokens,
            FarReader reader);
  uint64_t far_hits() const { return far_hits_; }
  /// Bytes of experts that the device reads over the bus beside those that note() counts.
  void note_read(uint64_t bytes) { bus_bytes_ += bytes; }
  /// Hits, moves and what both sent over the bus.
  void add_to(ExpertStats& stats) const;

  /// Starts the copies of these moves behind all work recorded so far. Experts that leave must not
  /// be read by work recorded from now on.
  void start(Encoder& encoder, std::span<const NearPlacement::Move> moves,
             const std::function<Source(ExpertKey)>& source_of);
  /// Experts whose copies have ended since the last call are there; tells of each, with its pin,
  /// once: it must not fail.
  void settle(Encoder& encoder,
              const std::function<void(const NearPlacement::Move&, ExpertPin)>& arrived);
  /// Moves whose copies are not known to have ended.
  size_t num_coming() const;
  /// True of an expert that lies in these slots.
  bool holds(const ExpertWeights& expert) const {
    return expert.gate.parts.codes.buffer == buffer_.get();
  }

 private:
  /// Copies that were asked for together.
  struct Moving {
    CopyId arrives{};
    std::vector<NearPlacement::Move> moves;
    std::vector<ExpertPin> pins;  // of each
  };

  size_t offset_of(NearPlacement::Slot slot) const { return slot * slot_bytes_; }

  const ExpertTable& table_;
  std::unique_ptr<Buffer> buffer_;
  size_t slot_bytes_;
  NearPlacement placement_;
  std::vector<Moving> moving_;  // in order
  std::vector<BufferCopy> copies_;
  uint64_t moves_made_ = 0;
  uint64_t bus_bytes_ = 0;
  uint64_t near_hits_ = 0;
  uint64_t far_hits_ = 0;
};

/// A device's own memory, and a helper, before the host's memory. Changes no result.
struct TierOptions {
  /// Bytes of the device's own memory for experts used most; only of a device that copies beside.
  uint64_t near_bytes = 0;
  NearPlacementOptions placement;
  HelperOptions helper = {};
  /// Experts that earlier runs used, of the table's shape, or null; not looked at later.
  const UsageProfile* profile = nullptr;
  /// Bytes of the device's memory that are left to others where it has less than near_bytes.
  uint64_t leave_bytes = 0;
  /// Told of each part of the memory that is smaller than asked for.
  LessMemory on_less = {};
};
/// Slots of the device's own memory for experts of the table, near_bytes of them or all. Where the
/// device has less, fewer or none, which leave `leave_bytes` to others.
Result<SlotMemory> allocate_near(const ExpertTable& table, Device& device,
                                 const TierOptions& options);

/// The ids without repetitions, ascending.
void distinct_ids(std::span<const int32_t> ids, std::vector<int32_t>& into);

/// How many layers and, in the widest of them, experts the table has.
ExpertShape shape_of(const ExpertTable& table);

}  // namespace moeflux
