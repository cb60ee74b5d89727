#include "experts/cache/layer_visit.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace moeflux {

// Sorted ids collapse into distinct ones and how often each came.
void LayerVisit::count_uses(std::span<const LayerRoutes> routes) {
  of_decode_.clear();
  of_prompts_.clear();
  for (const LayerRoutes& part : routes) {
    std::vector<int32_t>& ids = part.phase == StepPhase::kDecode ? of_decode_ : of_prompts_;
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
  }
  std::sort(of_decode_.begin(), of_decode_.end());
  of_decode_.erase(std::unique(of_decode_.begin(), of_decode_.end()), of_decode_.end());
  std::sort(of_prompts_.begin(), of_prompts_.end());
  uses_.clear();
  size_t kept = 0;
  for (size_t i = 0; i < of_prompts_.size(); ++i) {
    if (i > 0 && of_prompts_[i] == of_prompts_[kept - 1]) {
      ++uses_.back();
    } else {
      of_prompts_[kept++] = of_prompts_[i];
      uses_.push_back(1);
    }
  }
  of_prompts_.resize(kept);
  distinct_.clear();
  std::set_union(of_decode_.begin(), of_decode_.end(), of_prompts_.begin(), of_prompts_.end(),
                 std::back_inserter(distinct_));
}

// Experts that prompts alone want shall not displace those that decode uses.
Purpose LayerVisit::purpose_of(ExpertId expert) const {
  const bool passes = cache_->num_staging() > 0 &&
                      !std::binary_search(of_decode_.begin(), of_decode_.end(), index(expert));
  return passes ? Purpose::kPrompt : Purpose::kDecode;
}

void LayerVisit::begin(std::span<const LayerRoutes> routes,
                       const std::function<bool(ExpertId)>& is_elsewhere) {
  MF_CHECK(recycled_ == ready_.size() && num_waiting() == 0 && !routes.empty());
  layer_ = routes.front().layer;
  for (const LayerRoutes& part : routes) {
    MF_CHECK(part.layer == layer_ && part.tokens > 0 &&
             part.ids.size() % static_cast<size_t>(part.tokens) == 0);
  }
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
    if (is_elsewhere(expert)) continue;
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
    const Entry& next = first ? guessed_[guessed++] : arriving_[arriving++];
    cache_->promote(next.slot, purpose_of(next.expert));
  }
}

// Prompts first: what decode uses is the more recent.
void LayerVisit::note_uses(std::span<const LayerRoutes> routes) {
  int64_t prompt_tokens = 0;
  for (const LayerRoutes& part : routes) {
    if (part.phase == StepPhase::kPrompt) prompt_tokens += part.tokens;
  }
  if (prompt_tokens > 0) cache_->note_prefill(layer_, of_prompts_, uses_, prompt_tokens);
  for (const LayerRoutes& part : routes) {
    if (part.phase != StepPhase::kDecode) continue;
    // The best is noted last: of equal scores it is the one to keep.
    const auto top_k = static_cast<size_t>(part.top_k());
    for (size_t begin = 0; begin < part.ids.size(); begin += top_k) {
      cache_->begin_visit(layer_);
      for (size_t rank = top_k; rank-- > 0;) {
        cache_->note_use({layer_, ExpertId{part.ids[begin + rank]}});
      }
    }
  }
}

std::optional<LayerVisit::Entry> LayerVisit::reserve_next(
    const std::function<void(const Entry&)>& read) {
  if (num_waiting() == 0) return std::nullopt;
  const ExpertId expert = misses_[next_miss_];
  ExpertPin pin = cache_->reserve({layer_, expert}, purpose_of(expert));
  if (!pin) return std::nullopt;
  const Entry reserved{expert, pin.slot()};
  read(reserved);
  ++next_miss_;
  pins_[static_cast<size_t>(reserved.slot)] = std::move(pin);
  return reserved;
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
