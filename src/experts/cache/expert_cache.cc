#include "experts/cache/expert_cache.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "base/check.h"

namespace moeflux {

ExpertCache::ExpertCache(std::unique_ptr<Buffer> buffer, const Options& options)
    : options_(options),
      buffer_(std::move(buffer)),
      policy_(make_eviction_policy(options.shape, options.eviction)),
      victims_(options.shape, options.num_slots),
      entries_(options.num_slots),
      slots_(options.shape.size(), kNoSlot),
      last_use_(options.shape.size()),
      uses_(options.shape.size()),
      visits_(static_cast<size_t>(options.shape.num_layers)),
      limit_(options.num_slots) {
  MF_CHECK(options.num_slots > 0 && options.num_slots < kNoSlot && options.slot_bytes % 64 == 0);
  MF_CHECK(options.num_staging < options.num_slots && options.shape.size() > 0);
  MF_CHECK(options.slot_bytes == 0 ||
           offset_of(Slot{static_cast<uint32_t>(options.num_slots)}) <= buffer_->size_bytes());
  free_.reserve(options.num_slots);
  speculations_.reserve(options.num_slots);
  for (size_t i = options.num_slots; i-- > 0;) free_.push_back(Slot{static_cast<uint32_t>(i)});
}

std::optional<ExpertCache::Found> ExpertCache::lookup(ExpertKey key) const {
  const uint32_t slot = slots_[options_.shape.index_of(key)];
  if (slot == kNoSlot) return std::nullopt;
  return Found{Slot{slot}, entries_[slot].state};
}

std::optional<ExpertCache::Slot> ExpertCache::find(ExpertKey key) const {
  const std::optional<Found> found = lookup(key);
  if (!found || found->state != SlotState::kReady) return std::nullopt;
  return found->slot;
}

// Shrinking takes from the cached experts first: staging is small and keeps reads flowing.
size_t ExpertCache::cached_max() const {
  return limit_ > options_.num_staging ? limit_ - options_.num_staging : 1;
}

ExpertPin ExpertCache::occupy_free(ExpertKey key, Admission admission) {
  const Slot slot = free_.back();
  free_.pop_back();
  entry(slot) = {key, SlotState::kLoading, admission, 0};
  slots_[options_.shape.index_of(key)] = static_cast<uint32_t>(slot);
  if (admission == Admission::kCached) ++num_cached_;
  if (admission == Admission::kSpeculative) ++num_speculative_;
  if (admission == Admission::kTransient) ++bypasses_;
  return {*this, slot};
}

void ExpertCache::let_go(Slot slot) {
  Entry& going = entry(slot);
  MF_CHECK(going.pins > 0 && going.state == SlotState::kReady);
  if (going.admission == Admission::kCached) --num_cached_;
  if (going.admission == Admission::kSpeculative) --num_speculative_;
  going.admission = Admission::kTransient;
}

void ExpertCache::release(Slot slot) {
  Entry& gone = entry(slot);
  if (gone.admission == Admission::kCached) --num_cached_;
  if (gone.admission == Admission::kSpeculative) --num_speculative_;
  slots_[options_.shape.index_of(gone.key)] = kNoSlot;
  gone = {};
  free_.push_back(slot);
}

void ExpertCache::evict(const VictimQueue::Victim& victim) {
  victims_.remove(victim.layer, victim.slot);
  release(Slot{victim.slot});
  ++evictions_;
}

bool ExpertCache::drop_speculation() {
  if (speculations_.empty()) return false;
  release(speculations_.front());
  speculations_.erase(speculations_.begin());
  return true;
}

std::optional<VictimQueue::Victim> ExpertCache::victim_for(ExpertKey key) const {
  const std::optional<VictimQueue::Victim> victim = victims_.least(*policy_);
  const bool worth_it = victim && (!options_.guard_admission ||
                                   policy_->worth(key.layer, policy_->rank(key)) > victim->worth);
  return worth_it ? victim : std::nullopt;
}

ExpertPin ExpertCache::reserve(ExpertKey key, Purpose purpose) {
  MF_CHECK(!lookup(key));
  const std::optional<Admission> admission = make_room(key, purpose);
  return admission ? occupy_free(key, *admission) : ExpertPin();
}

// After it there is a free slot, for an expert so admitted; nullopt when none is to be had.
std::optional<Admission> ExpertCache::make_room(ExpertKey key, Purpose purpose) {
  switch (purpose) {
    case Purpose::kDecode:
      return make_room_for_decode(key);
    case Purpose::kPrompt:
      if (!may_take_free_slot() && !drop_speculation()) return std::nullopt;
      return num_cached_ < cached_max() ? Admission::kCached : Admission::kTransient;
    case Purpose::kGuess: {
      const bool all_fit = limit_ >= options_.shape.size();
      if (!all_fit && num_speculative_ >= options_.num_staging && !drop_speculation()) {
        return std::nullopt;
      }
      break;
    }
    case Purpose::kReadAhead:
      break;
  }
  if (!may_take_free_slot()) return std::nullopt;
  return Admission::kSpeculative;
}

std::optional<Admission> ExpertCache::make_room_for_decode(ExpertKey key) {
  if (num_cached_ < cached_max() && (may_take_free_slot() || drop_speculation())) {
    return Admission::kCached;
  }
  if (const auto victim = victim_for(key)) {
    evict(*victim);
    return Admission::kCached;
  }
  if (may_take_free_slot() || drop_speculation()) return Admission::kTransient;
  // Not worth it, but there is no other way to compute it.
  const std::optional<VictimQueue::Victim> victim = victims_.least(*policy_);
  if (!victim) return std::nullopt;
  evict(*victim);
  return Admission::kCached;
}

void ExpertCache::promote(Slot slot, Purpose purpose) {
  Entry& guess = entry(slot);
  MF_CHECK(guess.state != SlotState::kAbsent &&
           (purpose == Purpose::kDecode || purpose == Purpose::kPrompt));
  if (guess.admission != Admission::kSpeculative) return;
  const bool idle = guess.state == SlotState::kReady && guess.pins == 0;
  if (idle) speculations_.erase(std::find(speculations_.begin(), speculations_.end(), slot));
  bool cached = num_cached_ < cached_max();
  if (!cached && purpose == Purpose::kDecode) {
    const std::optional<VictimQueue::Victim> victim = victim_for(guess.key);
    if (victim) evict(*victim);
    cached = victim.has_value();
  }
  --num_speculative_;
  guess.admission = cached ? Admission::kCached : Admission::kTransient;
  if (cached) {
    ++num_cached_;
    if (idle) make_evictable(slot);
    return;
  }
  ++bypasses_;
  if (idle) release(slot);
}

void ExpertCache::set_ready(Slot slot) {
  Entry& arrived = entry(slot);
  MF_CHECK(arrived.state == SlotState::kLoading);
  arrived.state = SlotState::kReady;
}

ExpertPin::ExpertPin(ExpertCache& cache, Slot slot) : cache_(&cache), slot_(slot) {
  cache.pin(slot);
}

void ExpertCache::pin(Slot slot) {
  Entry& pinned = entry(slot);
  MF_CHECK(pinned.state != SlotState::kAbsent);
  if (pinned.pins++ > 0 || pinned.state == SlotState::kLoading) return;
  if (victims_.contains(static_cast<uint32_t>(slot))) {
    victims_.remove(pinned.key.layer, static_cast<uint32_t>(slot));
  } else {
    speculations_.erase(std::find(speculations_.begin(), speculations_.end(), slot));
  }
}

void ExpertPin::release() {
  if (ExpertCache* const cache = std::exchange(cache_, nullptr)) cache->unpin(slot_);
}

void ExpertCache::unpin(Slot slot) {
  Entry& unpinned = entry(slot);
  MF_CHECK(unpinned.pins > 0);
  if (--unpinned.pins > 0) return;
  if (unpinned.state == SlotState::kLoading) return release(slot);
  switch (unpinned.admission) {
    case Admission::kTransient:
      release(slot);
      return;
    case Admission::kSpeculative:
      speculations_.push_back(slot);
      break;
    case Admission::kCached:
      make_evictable(slot);
      break;
  }
  if (num_resident() > limit_ || num_cached_ > cached_max()) shrink_to(limit_);
}

void ExpertCache::make_evictable(Slot slot) {
  const ExpertKey key = entry(slot).key;
  victims_.insert(key.layer, {static_cast<uint32_t>(slot), policy_->rank(key),
                              last_use_[options_.shape.index_of(key)]});
}

void ExpertCache::rerank(Slot slot) {
  if (!victims_.contains(static_cast<uint32_t>(slot))) return;
  victims_.remove(entry(slot).key.layer, static_cast<uint32_t>(slot));
  make_evictable(slot);
}

void ExpertCache::begin_visit(LayerId layer) {
  policy_->begin_visit(layer);
  ++visits_[static_cast<size_t>(index(layer))];
}

void ExpertCache::note_use(ExpertKey key) {
  policy_->note_use(key);
  const size_t at = options_.shape.index_of(key);
  last_use_[at] = ++clock_;
  ++uses_[at];
  if (slots_[at] != kNoSlot) rerank(Slot{slots_[at]});
}

void ExpertCache::note_prefill(LayerId layer, std::span<const int32_t> experts,
                               std::span<const int32_t> uses, int64_t tokens) {
  MF_CHECK(experts.size() == uses.size() && tokens > 0);
  policy_->begin_prefill(layer, static_cast<double>(tokens));
  for (size_t i = 0; i < experts.size(); ++i) {
    const ExpertKey key{layer, ExpertId{experts[i]}};
    policy_->note_prefill(key, uses[i]);
    last_use_[options_.shape.index_of(key)] = ++clock_;
  }
  rerank(layer);
}

void ExpertCache::seed(LayerId layer, std::span<const double> uses, double tokens) {
  MF_CHECK(uses.size() <= static_cast<size_t>(options_.shape.num_experts) && tokens > 0.0);
  policy_->begin_prefill(layer, tokens);
  for (size_t e = 0; e < uses.size(); ++e) {
    if (uses[e] <= 0.0) continue;
    policy_->note_prefill({layer, ExpertId{static_cast<int32_t>(e)}}, uses[e]);
  }
  rerank(layer);
}

void ExpertCache::describe(ExpertMap& map) const {
  for (const Entry& entry : entries_) {
    if (entry.state != SlotState::kReady) continue;
    map.places[options_.shape.index_of(entry.key)] = ExpertPlace::kHost;
  }
  map.uses.assign(uses_.begin(), uses_.end());
}

ExpertCache::Stats ExpertCache::stats() const {
  return {.evictions = evictions_,
          .bypasses = bypasses_,
          .uses = uses_,
          .tokens = *std::max_element(visits_.begin(), visits_.end())};
}

// A prompt's shares are of all its tokens so far: every rank of the layer may have moved.
void ExpertCache::rerank(LayerId layer) {
  for (int32_t e = 0; e < options_.shape.num_experts; ++e) {
    const uint32_t slot = slots_[options_.shape.index_of({layer, ExpertId{e}})];
    if (slot != kNoSlot) rerank(Slot{slot});
  }
}

size_t ExpertCache::shrink_to(size_t num_slots) {
  limit_ = std::clamp<size_t>(num_slots, 1, options_.num_slots);
  while (num_resident() > limit_ && drop_speculation()) {
  }
  while (num_resident() > limit_ || num_cached_ > cached_max()) {
    const std::optional<VictimQueue::Victim> victim = victims_.least(*policy_);
    if (!victim) break;
    evict(*victim);
  }
  return num_resident();
}

// Free slots are taken from the end of free_: with the last slots at its front, those beyond the
// limit are not taken as long as it stands.
size_t ExpertCache::compact() {
  while (drop_speculation()) {
  }
  std::sort(free_.begin(), free_.end(), std::greater<>());
  for (auto from = static_cast<uint32_t>(options_.num_slots); from-- > limit_;) {
    const Entry& entry = entries_[from];
    if (entry.state == SlotState::kAbsent) continue;
    if (entry.state != SlotState::kReady || entry.pins > 0) return options_.num_slots;
    move(Slot{from}, free_.back());
  }
  return limit_;
}

// To a free slot, the last of free_, before `from`.
void ExpertCache::move(Slot from, Slot to) {
  MF_CHECK(to < from && to == free_.back());
  if (options_.slot_bytes > 0) {
    std::memcpy(buffer_->host_data() + offset_of(to), buffer_->host_data() + offset_of(from),
                options_.slot_bytes);
  }
  victims_.remove(entry(from).key.layer, static_cast<uint32_t>(from));
  entry(to) = std::exchange(entry(from), {});
  slots_[options_.shape.index_of(entry(to).key)] = static_cast<uint32_t>(to);
  make_evictable(to);
  free_.pop_back();
  free_.insert(std::upper_bound(free_.begin(), free_.end(), from, std::greater<>()), from);
}

void guard_below_one_token(ExpertCache::Options& options, const TokenDemand& demand) {
  const auto cliff = static_cast<size_t>(demand.per_token);
  if (options.num_slots >= cliff + cliff / 5) return;
  options.guard_admission = true;
  options.num_staging = std::min(static_cast<size_t>(demand.per_layer), options.num_slots / 4);
}

void set_staging(ExpertCache::Options& options, uint64_t num_experts) {
  // 64 experts of 1.8 MB take 60 ms at 2 GB/s, about as long as the attention of 512 tokens.
  constexpr size_t kStagingMax = 64;
  // A cache for all experts passes none through.
  if (options.guard_admission || options.num_slots >= num_experts) return;
  options.num_staging = std::min(kStagingMax, options.num_slots / 32);
}

}  // namespace moeflux
