#include "experts/tiers/near_slots.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace moeflux {

NearSlots::NearSlots(const ExpertTable& table, SlotMemory memory, size_t slot_bytes,
                     const NearPlacementOptions& options)
    : table_(table),
      buffer_(std::move(memory.buffer)),
      slot_bytes_(slot_bytes),
      placement_(shape_of(table), memory.slots, options) {
  MF_CHECK(memory.slots == 0 || buffer_->size_bytes() >= memory.slots * slot_bytes);
}

std::optional<ExpertWeights> NearSlots::find(ExpertKey key) const {
  const std::optional<NearPlacement::Slot> slot = placement_.slot_of(key);
  if (!slot) return std::nullopt;
  return at(key, *slot);
}

ExpertWeights NearSlots::at(ExpertKey key, NearPlacement::Slot slot) const {
  return table_.layer(key.layer).weights(key.expert, *buffer_, offset_of(slot));
}

Status NearSlots::upload(Device& device, ExpertKey key, NearPlacement::Slot slot,
                         const Source& source) {
  MF_RETURN_IF_ERROR(device.upload(
      *buffer_, offset_of(slot),
      {source.buffer->host_data() + source.offset, table_.layer(key.layer).slot_bytes}));
  placement_.arrived(slot);
  return {};
}

void NearSlots::note(LayerId layer, StepPhase phase, std::span<const int32_t> experts,
                     int64_t tokens, FarReader reader) {
  if (phase == StepPhase::kPrompt) return placement_.note_prompt(layer, experts, tokens);
  placement_.note_use(layer, experts);
  for (const int32_t e : experts) {
    if (placement_.slot_of({layer, ExpertId{e}})) {
      ++near_hits_;
    } else {
      ++far_hits_;
      if (reader == FarReader::kDevice) bus_bytes_ += table_.layer(layer).slot_bytes;
    }
  }
}

void NearSlots::add_to(ExpertStats& stats) const {
  stats.near_hits += near_hits_;
  stats.far_hits += far_hits_;
  stats.promotions += moves_made_;
  stats.bus_bytes += bus_bytes_;
}

void NearSlots::start(Encoder& encoder, std::span<const NearPlacement::Move> moves,
                      const std::function<Source(ExpertKey)>& source_of) {
  if (moves.empty()) return;
  Moving moving;
  copies_.clear();
  for (const NearPlacement::Move& move : moves) {
    MF_CHECK(!placement_.slot_of(move.in));  // nobody is told of a place before its copy is there
    Source source = source_of(move.in);
    MF_CHECK(source.buffer != buffer_.get());
    copies_.push_back({.to = buffer_.get(),
                       .to_offset = offset_of(move.slot),
                       .from = source.buffer,
                       .from_offset = source.offset,
                       .bytes = table_.layer(move.in.layer).slot_bytes});
    bus_bytes_ += copies_.back().bytes;
    moving.moves.push_back(move);
    moving.pins.push_back(std::move(source.pin));
  }
  moves_made_ += moves.size();
  moving.arrives = encoder.copy_beside(copies_, encoder.submit());
  moving_.push_back(std::move(moving));
}

void NearSlots::settle(Encoder& encoder,
                       const std::function<void(const NearPlacement::Move&, ExpertPin)>& arrived) {
  while (!moving_.empty() && encoder.has_copied(moving_.front().arrives)) {
    Moving there = std::move(moving_.front());
    moving_.erase(moving_.begin());
    for (size_t i = 0; i < there.moves.size(); ++i) {
      placement_.arrived(there.moves[i].slot);
      arrived(there.moves[i], std::move(there.pins[i]));
    }
  }
}

size_t NearSlots::num_coming() const {
  size_t coming = 0;
  for (const Moving& moving : moving_) coming += moving.moves.size();
  return coming;
}

// By eighths: to ask takes no time, and every slot counts.
Result<SlotMemory> allocate_near(const ExpertTable& table, Device& device,
                                 const TierOptions& options) {
  const size_t slot_bytes = table.slot_bytes_max();
  const uint64_t slots = std::min(options.near_bytes / slot_bytes, table.num_experts_total());
  return allocate_slots(device, {.name = "near cache",
                                 .slots = static_cast<size_t>(slots),
                                 .slot_bytes = slot_bytes,
                                 .kind = MemoryKind::kDevice,
                                 .share = 0.875,
                                 .leave_bytes = options.leave_bytes,
                                 .on_less = options.on_less});
}

void distinct_ids(std::span<const int32_t> ids, std::vector<int32_t>& into) {
  into.assign(ids.begin(), ids.end());
  std::ranges::sort(into);
  into.erase(std::unique(into.begin(), into.end()), into.end());
}

ExpertShape shape_of(const ExpertTable& table) {
  ExpertShape shape{.num_layers = static_cast<int32_t>(table.layers.size())};
  for (const ExpertLayer& layer : table.layers) {
    shape.num_experts = std::max(shape.num_experts, layer.num_experts);
  }
  return shape;
}

}  // namespace moeflux
