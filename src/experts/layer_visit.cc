#include "experts/layer_visit.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace moeflux {

// Sorted ids collapse into distinct ones and how often each came.
void LayerVisit::count_uses(const LayerRoutes& routes) {
  distinct_.assign(routes.ids.begin(), routes.ids.end());
  std::sort(distinct_.begin(), distinct_.end());
  uses_.clear();
  size_t kept = 0;
  for (size_t i = 0; i < distinct_.size(); ++i) {
    if (i > 0 && distinct_[i] == distinct_[kept - 1]) {
      ++uses_.back();
    } else {
      distinct_[kept++] = distinct_[i];
      uses_.push_back(1);
    }
  }
  distinct_.resize(kept);
}

void LayerVisit::begin(const LayerRoutes& routes) {
  MF_CHECK(recycled_ == ready_.size() && num_waiting() == 0);
  MF_CHECK(routes.tokens > 0 && routes.ids.size() % static_cast<size_t>(routes.tokens) == 0);
  layer_ = routes.layer;
  purpose_ = routes.phase == RoutePhase::kPrefill && cache_->num_staging() > 0 ? Purpose::kPrompt
                                                                               : Purpose::kDecode;
  hits_.clear();
  guessed_.clear();
  arriving_.clear();
  misses_.clear();
  next_miss_ = 0;
  ready_.clear();
  delivered_ = recycled_ = 0;
  count_uses(routes);
  // Before anything is pinned: memory that runs out later would leave a visit half begun.
  for (std::vector<Entry>* list : {&hits_, &guessed_, &arriving_, &ready_}) {
    list->reserve(distinct_.size());
  }
  misses_.reserve(distinct_.size());
  MF_CHECK(distinct_.empty() ||
           (distinct_.front() >= 0 && distinct_.back() < cache_->shape().num_experts));
  for (const int32_t id : distinct_) {
    const ExpertId expert{id};
    const auto found = cache_->lookup({layer_, expert});
    if (!found) {
      misses_.push_back(expert);
      continue;
    }
    pins_[static_cast<size_t>(found->slot)] = ExpertPin(*cache_, found->slot);
    const bool guess = cache_->admission_of(found->slot) == Admission::kSpeculative;
    if (found->state == SlotState::kReady) {
      (guess ? guessed_ : hits_).push_back({expert, found->slot});
      ready_.push_back({expert, found->slot});
    } else {
      arriving_.push_back({expert, found->slot});
    }
  }
  note_uses(routes);
  promote_guesses();
}

// After the policy knows, as for misses, and in their order: what was read ahead comes sooner, it
// does not stay longer.
void LayerVisit::promote_guesses() {
  size_t guessed = 0;
  size_t arriving = 0;
  while (guessed < guessed_.size() || arriving < arriving_.size()) {
    const bool first = arriving == arriving_.size() ||
                       (guessed < guessed_.size() &&
                        index(guessed_[guessed].expert) < index(arriving_[arriving].expert));
    cache_->promote(first ? guessed_[guessed++].slot : arriving_[arriving++].slot, purpose_);
  }
}

void LayerVisit::note_uses(const LayerRoutes& routes) {
  if (routes.phase == RoutePhase::kPrefill) {
    cache_->note_prefill(layer_, distinct_, uses_, routes.tokens);
    return;
  }
  // The best is noted last: of equal scores it is the one to keep.
  const auto top_k = static_cast<size_t>(routes.top_k());
  for (size_t begin = 0; begin < routes.ids.size(); begin += top_k) {
    cache_->begin_visit(layer_);
    for (size_t rank = top_k; rank-- > 0;) {
      cache_->note_use({layer_, ExpertId{routes.ids[begin + rank]}});
    }
  }
}

std::optional<LayerVisit::Entry> LayerVisit::reserve_next() {
  if (num_waiting() == 0) return std::nullopt;
  const ExpertId expert = misses_[next_miss_];
  ExpertPin pin = cache_->reserve({layer_, expert}, purpose_);
  if (!pin) return std::nullopt;
  ++next_miss_;
  const ExpertCache::Slot slot = pin.slot();
  pins_[static_cast<size_t>(slot)] = std::move(pin);
  return Entry{expert, slot};
}

void LayerVisit::arrived(ExpertCache::Slot slot) {
  cache_->set_ready(slot);
  ready_.push_back({cache_->key_of(slot).expert, slot});
}

void LayerVisit::failed(ExpertCache::Slot slot) { pins_[static_cast<size_t>(slot)].release(); }

std::span<const LayerVisit::Entry> LayerVisit::deliver(size_t max) {
  const size_t begin = delivered_;
  delivered_ += std::min(max, ready_.size() - delivered_);
  return std::span(ready_).subspan(begin, delivered_ - begin);
}

void LayerVisit::recycle() {
  for (; recycled_ < delivered_; ++recycled_) {
    pins_[static_cast<size_t>(ready_[recycled_].slot)].release();
  }
}

void LayerVisit::end() {
  delivered_ = ready_.size();
  recycle();
  next_miss_ = misses_.size();
}

}  // namespace moeflux
