#include "experts/stores/tiered_expert_store.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "base/units.h"
#include "experts/drive/expert_fetch.h"
#include "experts/tiers/expert_ring.h"
#include "experts/tiers/usage_profile.h"
#include "experts/whole_lease.h"

namespace moeflux {
namespace {

constexpr size_t kRingPartExperts = 16;
// Both read the host's memory at rates of one order: a third of the bytes over the bus takes as
// long as two thirds take a host of many cores.
constexpr DeviceEighths kShared = 3;
constexpr std::array<DeviceEighths, 5> kWays = {kDeviceAlone, 0, 2, kShared, 4};

/// Where all experts lie in a buffer of the host's memory.
class FarExperts {
 public:
  FarExperts(const ExpertTable& table, Buffer& buffer)
      : table_(table), slot_bytes_(table.slot_bytes_max()), buffer_(buffer) {
    for (const ExpertLayer& layer : table_.layers) {
      first_.push_back(count_);
      count_ += static_cast<size_t>(layer.num_experts);
    }
    MF_CHECK(buffer_.host_data() != nullptr && buffer_.size_bytes() >= bytes());
  }

  Status load(const TensorIndex& files, AsyncReader& reader, bool check_arrivals) {
    ExpertFetch fetch(table_, files, reader,
                      {.memory = {buffer_.host_data(), count_ * slot_bytes_},
                       .slot_bytes = slot_bytes_,
                       .check_arrivals = check_arrivals});
    return fetch_all(
        table_, fetch, kInFlight, [&](ExpertKey key) { return ExpertCache::Slot(slot_of(key)); },
        [](const ExpertFetch::Arrival&) { return Status(); });
  }

  Buffer& buffer() const { return buffer_; }
  size_t offset_of(ExpertKey key) const { return slot_of(key) * slot_bytes_; }
  ExpertWeights weights(ExpertKey key) const {
    return table_.layer(key.layer).weights(key.expert, buffer_, offset_of(key));
  }
  size_t slot_bytes() const { return slot_bytes_; }
  uint64_t bytes() const { return count_ * slot_bytes_; }

 private:
  // Enough for any drive's queue.
  static constexpr size_t kInFlight = 64;

  size_t slot_of(ExpertKey key) const {
    return first_[static_cast<size_t>(index(key.layer))] + static_cast<size_t>(index(key.expert));
  }

  const ExpertTable& table_;
  size_t slot_bytes_;
  size_t count_ = 0;
  std::vector<size_t> first_;  // by layer, slot of its expert 0
  Buffer& buffer_;
};

/// A store's share of a device's memory beside near slots.
struct Passage {
  std::optional<RouteLog> log;  // with near slots
  std::unique_ptr<Buffer> buffer;
  size_t parts = 0;  // of a ring in the buffer; 0: it has room for one token's experts
};

Result<Passage> allocate_passage(const ExpertTable& table, Device& device,
                                 const TieredExpertStoreOptions& options) {
  Passage passage;
  const size_t slot_bytes = table.slot_bytes_max();
  if (options.tier.near_bytes >= slot_bytes) {
    MF_ASSIGN_OR_RETURN(passage.log, RouteLog::create(device, table, options.step_tokens_max,
                                                      options.experts_per_token_max));
  }
  const uint64_t part_bytes = ring_part(table) * slot_bytes;
  const auto parts = std::min<size_t>(kRingPartsMax, options.ring_bytes / part_bytes);
  if (parts >= 2) {
    MF_ASSIGN_OR_RETURN(SlotMemory ring,
                        allocate_slots(device, {.name = "ring of a prompt's experts",
                                                .slots = parts,
                                                .slot_bytes = part_bytes,
                                                .on_less = options.tier.on_less}));
    if (ring.slots >= 2) {
      passage.parts = ring.slots;
      passage.buffer = std::move(ring.buffer);
      return passage;
    }
  }
  const auto places = static_cast<size_t>(options.experts_per_token_max);
  Result<std::unique_ptr<Buffer>> landing =
      device.allocate(places * slot_bytes, MemoryKind::kDevice);
  if (!landing.ok()) {
    return landing.error().with_context(
        formatted("room for the {} experts of a token, {} each", places, format_bytes(slot_bytes)));
  }
  passage.buffer = std::move(landing).value();
  return passage;
}

/// Experts in the device's memory first, then the others as they come through the ring.
class RingLease : public ExpertLease {
 public:
  RingLease(std::span<const ExpertWeights> near, size_t num_experts, ExpertRing& ring,
            Encoder& encoder, LayerId layer)
      : near_(near), num_left_(num_experts), ring_(ring), encoder_(encoder), layer_(layer) {}
  Result<std::span<const ExpertWeights>> wait_some() override {
    const std::span<const ExpertWeights> wave =
        near_.empty() ? ring_.next(encoder_, layer_) : std::exchange(near_, {});
    MF_CHECK(wave.empty() ? num_left_ == 0 : wave.size() <= num_left_);  // each comes once
    num_left_ -= wave.size();
    return wave;
  }

 private:
  std::span<const ExpertWeights> near_;
  size_t num_left_;
  ExpertRing& ring_;
  Encoder& encoder_;
  LayerId layer_;
};

class TieredExpertStore : public ExpertStore {
 public:
  TieredExpertStore(const ExpertTable& table, FarExperts far, SlotMemory near, Passage passage,
                    const TieredExpertStoreOptions& options)
      : ExpertStore(make_tiered_help(options.tier.helper)),
        table_(table),
        far_(std::move(far)),
        near_(table, std::move(near), far_.slot_bytes(), options.tier.placement),
        moved_(table.layers.size()),
        bytes_read_(options.bytes_read) {
    for (size_t l = 0; l < table_.layers.size(); ++l) {
      auto& experts = *layers_.emplace_back(std::make_shared<std::vector<ExpertWeights>>());
      for (int32_t e = 0; e < table_.layers[l].num_experts; ++e) {
        const ExpertKey key{LayerId{static_cast<int32_t>(l)}, ExpertId{e}};
        experts.push_back(far_.weights(key));
      }
      moved_[l].reserve(experts.size());
    }
    if (near_.placement().num_slots() > 0) {
      log_ = std::move(passage.log);
      if (options.tier.profile != nullptr) options.tier.profile->seed(near_.placement());
    }
    if (passage.parts > 0) {
      const size_t part = ring_part(table_);
      const size_t slots = passage.parts * part;
      const size_t wave = std::max(part, slots / kRingWaves);
      ring_.emplace(table_, std::move(passage.buffer), far_.slot_bytes(), wave, slots / wave);
    } else {
      landing_ = std::move(passage.buffer);
    }
  }

  /// As many of each layer: nobody knows yet which of them will be used.
  Status fill(Device& device);

  Result<std::unique_ptr<ExpertLease>> lease(LayerId layer, Encoder& encoder,
                                             const Routes& routes) override;
  void begin_step(std::span<const StepRows> rows, Encoder& encoder) override;
  ExpertStats stats() const override {
    ExpertStats stats{.bytes_read = bytes_read_};
    near_.add_to(stats);
    if (ring_) stats.bus_bytes += ring_->bytes_copied();
    stats.helped_steps = helped_steps();
    return stats;
  }
  void describe(ExpertMap& map) const override { near_.placement().describe(map); }
  bool add_uses(UsageProfile& profile) const override {
    if (!log_) return false;
    profile.add(near_.placement());
    return true;
  }
  uint64_t capacity_bytes() const override {
    return far_.bytes() + near_.placement().num_slots() * far_.slot_bytes();
  }

 private:
  std::vector<ExpertWeights>& layer_of(LayerId layer) {
    return *layers_[static_cast<size_t>(index(layer))];
  }
  NearSlots::Source source_of(ExpertKey key) const {
    return {.buffer = &far_.buffer(), .offset = far_.offset_of(key)};
  }
  void place(ExpertKey key, const ExpertWeights& where);
  void tell_moved(Encoder& encoder);
  void settle(Encoder& encoder);
  void start_moves(Encoder& encoder, uint64_t most);
  void check_places(std::span<const NearPlacement::Move> moves);
  bool uses_ring(const Routes& routes, LayerId layer) const;
  void begin_ring(Encoder& encoder, LayerId first);
  Result<std::unique_ptr<ExpertLease>> helped_lease(LayerId layer, Encoder& encoder,
                                                    const Routes& routes);
  void divide_far(LayerId layer);

  const ExpertTable& table_;
  FarExperts far_;
  NearSlots near_;
  std::vector<std::shared_ptr<std::vector<ExpertWeights>>> layers_;  // where each expert is read
  std::vector<std::vector<size_t>> moved_;  // by layer, experts with new addresses
  std::optional<ExpertRing> ring_;
  std::unique_ptr<Buffer> landing_;  // where there is no ring
  bool ring_has_begun_ = false;      // in this step
  LayerId ring_layer_{};             // that was leased from it last
  std::vector<ExpertRing::Source> sources_;
  // A layer's, while a prompt goes through the ring or a helper takes part.
  std::vector<ExpertWeights> near_experts_;
  std::vector<ExpertWeights> far_experts_;
  std::vector<int32_t> ids_;   // distinct
  std::vector<int32_t> uses_;  // by expert
  uint64_t bytes_read_;
};

// Places the experts that earlier runs used most; without any, as many of each layer.
Status TieredExpertStore::fill(Device& device) {
  std::vector<ExpertKey> experts;
  const int32_t most = shape_of(table_).num_experts;
  for (int32_t e = 0; e < most; ++e) {
    for (size_t l = 0; l < table_.layers.size(); ++l) {
      if (e >= table_.layers[l].num_experts) continue;
      experts.push_back({LayerId{static_cast<int32_t>(l)}, ExpertId{e}});
    }
  }
  near_.placement().rank(experts);
  for (const ExpertKey key : experts) {
    const std::optional<NearPlacement::Slot> slot = near_.placement().fill(key);
    if (!slot) return {};
    MF_RETURN_IF_ERROR(near_.upload(device, key, *slot, source_of(key)));
    layer_of(key.layer)[static_cast<size_t>(index(key.expert))] = near_.at(key, *slot);
  }
  return {};
}

// Near only once it is there, far only once it has left.
void TieredExpertStore::place(ExpertKey key, const ExpertWeights& where) {
  MF_CHECK(near_.holds(where) == near_.placement().slot_of(key).has_value());
  const auto expert = static_cast<size_t>(index(key.expert));
  layer_of(key.layer)[expert] = where;
  std::vector<size_t>& moved = moved_[static_cast<size_t>(index(key.layer))];
  if (std::ranges::find(moved, expert) == moved.end()) moved.push_back(expert);
}

void TieredExpertStore::tell_moved(Encoder& encoder) {
  for (size_t l = 0; l < moved_.size(); ++l) {
    if (moved_[l].empty()) continue;
    encoder.experts_moved(*layers_[l], moved_[l]);
    moved_[l].clear();
  }
}

// Experts whose copies have arrived are read where these lie from now on.
void TieredExpertStore::settle(Encoder& encoder) {
  near_.settle(encoder, [&](const NearPlacement::Move& move, const ExpertPin&) {
    place(move.in, near_.at(move.in, move.slot));
  });
}

// Nobody is read where a copy is about to write, as work from now on is told.
void TieredExpertStore::check_places(std::span<const NearPlacement::Move> moves) {
  for (const NearPlacement::Move& move : moves) {
    if (!move.out) continue;
    const auto layer = static_cast<size_t>(index(move.out->layer));
    const auto expert = static_cast<size_t>(index(move.out->expert));
    MF_CHECK(!near_.holds((*layers_[layer])[expert]) && moved_[layer].empty());
  }
}

// Experts that leave are read in host memory from now on; the copies wait for the work before.
void TieredExpertStore::start_moves(Encoder& encoder, uint64_t most) {
  const std::span<const NearPlacement::Move> moves = near_.placement().choose_moves(most);
  for (const NearPlacement::Move& move : moves) {
    if (move.out) place(*move.out, far_.weights(*move.out));
  }
  tell_moved(encoder);
  check_places(moves);
  near_.start(encoder, moves, [&](ExpertKey key) { return source_of(key); });
}

void TieredExpertStore::begin_step(std::span<const StepRows> rows, Encoder& encoder) {
  ExpertStore::begin_step(rows, encoder);
  if (ring_has_begun_) ring_->settle(encoder);
  ring_has_begun_ = false;
  if (!log_) return;
  settle(encoder);
  const uint64_t far_before = near_.far_hits();
  const std::span<const RouteLog::Visit> visits = log_->next(encoder, rows);
  const bool is_prompt = std::ranges::any_of(
      visits, [](const RouteLog::Visit& v) { return v.phase == StepPhase::kPrompt; });
  int64_t tokens = log_->tokens_of_decode();
  if (help().helper() != nullptr) tokens += decoded_rows(rows);  // which its leases count
  for (int64_t i = 0; i < tokens; ++i) near_.placement().begin_token();
  for (const RouteLog::Visit& v : visits) {
    near_.note(v.layer, v.phase, v.ids, v.tokens, NearSlots::FarReader::kDevice);
  }
  start_moves(encoder, moves_after_step(is_prompt, near_.far_hits() - far_before));
}

bool TieredExpertStore::uses_ring(const Routes& routes, LayerId layer) const {
  return ring_ && routes.ids.num_elements() >= kRingChoices * table_.layer(layer).num_experts;
}

void TieredExpertStore::begin_ring(Encoder& encoder, LayerId first) {
  sources_.clear();
  for (auto l = static_cast<size_t>(index(first)); l < table_.layers.size(); ++l) {
    for (int32_t e = 0; e < table_.layers[l].num_experts; ++e) {
      const ExpertKey key{LayerId{static_cast<int32_t>(l)}, ExpertId{e}};
      if (near_.placement().slot_of(key)) continue;
      sources_.push_back({key, &far_.buffer(), far_.offset_of(key)});
    }
  }
  ring_has_begun_ = true;  // even if it has no memory for all of it
  ring_->begin(encoder, sources_);
}

// The device computes its part of the far experts where they lie, with those that are near. It
// takes those that most rows chose: to bring them costs it the same, and the helper more.
void TieredExpertStore::divide_far(LayerId layer) {
  const auto eighths = static_cast<size_t>(help().device_eighths());
  const size_t count = (far_experts_.size() * eighths + 3) / 8;
  if (count == 0) return;
  if (readback().ids().size() > ids_.size()) {
    uses_.assign(layer_of(layer).size(), 0);
    for (const int32_t id : readback().ids()) ++uses_[static_cast<size_t>(id)];
    std::ranges::stable_sort(far_experts_, std::ranges::greater{}, [&](const ExpertWeights& e) {
      return uses_[static_cast<size_t>(index(e.expert))];
    });
  }
  const auto end = far_experts_.begin() + static_cast<std::ptrdiff_t>(count);
  near_experts_.insert(near_experts_.end(), far_experts_.begin(), end);
  far_experts_.erase(far_experts_.begin(), end);
  near_.note_read(count * table_.layer(layer).slot_bytes);
}

Result<std::unique_ptr<ExpertLease>> TieredExpertStore::helped_lease(LayerId layer,
                                                                     Encoder& encoder,
                                                                     const Routes& routes) {
  MF_ASSIGN_OR_RETURN(const std::span<const LayerRoutes> parts,
                      readback().read(layer, encoder, routes));
  for (const LayerRoutes& part : parts) {
    near_.note(layer, part.phase, part.ids, part.tokens, NearSlots::FarReader::kHelper);
  }
  readback().tell({});
  distinct_ids(readback().ids(), ids_);
  near_experts_.clear();
  far_experts_.clear();
  const std::vector<ExpertWeights>& own = layer_of(layer);
  for (const int32_t id : ids_) {
    MF_CHECK(id >= 0 && static_cast<size_t>(id) < own.size());
    const bool is_near = near_.placement().slot_of({layer, ExpertId{id}}).has_value();
    (is_near ? near_experts_ : far_experts_).push_back(own[static_cast<size_t>(id)]);
  }
  divide_far(layer);
  return std::unique_ptr<ExpertLease>(std::make_unique<WholeLease>(near_experts_, far_experts_));
}

Result<std::unique_ptr<ExpertLease>> TieredExpertStore::lease(LayerId layer, Encoder& encoder,
                                                              const Routes& routes) {
  if (help().helper() != nullptr) return helped_lease(layer, encoder, routes);
  MF_RETURN_IF_ERROR(readback().show(layer, encoder, routes));
  const std::shared_ptr<std::vector<ExpertWeights>>& own =
      layers_[static_cast<size_t>(index(layer))];
  if (!ring_has_begun_ && !uses_ring(routes, layer)) {
    MF_CHECK(!ring_ || ring_->is_settled());  // chosen experts land in its memory
    encoder.experts_stay(own, {.far = &far_.buffer(),
                               .landing = ring_ ? &ring_->memory() : landing_.get(),
                               .slot_bytes = far_.slot_bytes(),
                               .expert_bytes = table_.layer(layer).slot_bytes});
    return std::unique_ptr<ExpertLease>(std::make_unique<WholeLease>(*own));
  }
  if (ring_has_begun_ && index(layer) <= index(ring_layer_)) {  // a loop's layers come again
    ring_->settle(encoder);
    ring_has_begun_ = false;
  }
  if (!ring_has_begun_) begin_ring(encoder, layer);
  ring_layer_ = layer;
  near_experts_.clear();
  for (const ExpertWeights& expert : *own) {
    if (near_.placement().slot_of({layer, expert.expert})) near_experts_.push_back(expert);
  }
  return std::unique_ptr<ExpertLease>(
      std::make_unique<RingLease>(near_experts_, own->size(), *ring_, encoder, layer));
}

}  // namespace

int64_t helped_rows_max(const ExpertTable& table, int64_t experts_per_token) {
  return (kRingChoices * shape_of(table).num_experts - 1) / experts_per_token;
}

HelpedSteps make_tiered_help(const HelperOptions& helper) {
  return HelpedSteps(helper, kWays, kShared);
}

size_t ring_part(const ExpertTable& table) {
  return std::min(kRingPartExperts, static_cast<size_t>(shape_of(table).num_experts));
}

Result<std::unique_ptr<Buffer>> allocate_far_experts(const ExpertTable& table, Device& device) {
  return device.allocate(table.num_experts_total() * table.slot_bytes_max(),
                         MemoryKind::kHostVisible);
}

Status load_far_experts(const ExpertTable& table, const TensorIndex& index, AsyncReader& reader,
                        Buffer& far, bool check_arrivals) {
  return FarExperts(table, far).load(index, reader, check_arrivals);
}

Result<std::unique_ptr<ExpertStore>> make_tiered_expert_store(
    const ExpertTable& table, Device& device, Buffer& far,
    const TieredExpertStoreOptions& options) {
  if (table.slot_bytes_max() == 0) return make_empty_expert_store();
  MF_CHECK(device.copies_beside());
  // Near slots come last: they take what there is.
  MF_ASSIGN_OR_RETURN(Passage passage, allocate_passage(table, device, options));
  MF_ASSIGN_OR_RETURN(SlotMemory near, allocate_near(table, device, options.tier));
  auto store = std::make_unique<TieredExpertStore>(table, FarExperts(table, far), std::move(near),
                                                   std::move(passage), options);
  MF_RETURN_IF_ERROR(store->fill(device));
  return std::unique_ptr<ExpertStore>(std::move(store));
}

}  // namespace moeflux
