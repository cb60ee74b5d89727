#include "experts/expert_cache.h"

#include <utility>

#include "base/check.h"

namespace moeflux {

ExpertCache::ExpertCache(std::unique_ptr<Buffer> buffer, const Options& options)
    : options_(options), buffer_(std::move(buffer)), entries_(options.num_slots) {
  MF_CHECK(options.num_slots > 0 && options.slot_bytes % 64 == 0);
  MF_CHECK(capacity_bytes() <= buffer_->size_bytes());
  by_key_.reserve(options.num_slots);
  for (size_t i = 0; i < options.num_slots; ++i) {
    entries_[i].position = recency_.insert(recency_.end(), Slot{static_cast<uint32_t>(i)});
  }
}

std::optional<ExpertCache::Slot> ExpertCache::find(ExpertKey key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return std::nullopt;
  Entry& hit = entry(found->second);
  if (hit.state != State::kReady) return std::nullopt;
  recency_.splice(recency_.end(), recency_, hit.position);
  return found->second;
}

std::optional<ExpertCache::Slot> ExpertCache::reserve(ExpertKey key) {
  MF_CHECK(!by_key_.contains(key));
  for (const Slot slot : recency_) {
    Entry& victim = entry(slot);
    if (victim.pins > 0) continue;
    if (victim.state != State::kAbsent) {
      auto node = by_key_.extract(victim.key);  // reused: replacing an expert allocates nothing
      node.key() = key;
      by_key_.insert(std::move(node));
      ++evictions_;
    } else {
      by_key_.emplace(key, slot);
    }
    victim.key = key;
    victim.state = State::kLoading;
    victim.pins = 1;
    recency_.splice(recency_.end(), recency_, victim.position);
    return slot;
  }
  return std::nullopt;
}

void ExpertCache::set_ready(Slot slot) {
  MF_CHECK(entry(slot).state == State::kLoading);
  entry(slot).state = State::kReady;
}

void ExpertCache::abandon(Slot slot) {
  Entry& failed = entry(slot);
  MF_CHECK(failed.state == State::kLoading && failed.pins == 1);
  by_key_.erase(failed.key);
  failed.state = State::kAbsent;
  failed.pins = 0;
  recency_.splice(recency_.begin(), recency_, failed.position);
}

void ExpertCache::pin(Slot slot) {
  MF_CHECK(entry(slot).state != State::kAbsent);
  ++entry(slot).pins;
}

void ExpertCache::unpin(Slot slot) {
  MF_CHECK(entry(slot).pins > 0);
  --entry(slot).pins;
}

}  // namespace moeflux
