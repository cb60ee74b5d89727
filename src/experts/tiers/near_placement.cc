#include "experts/tiers/near_placement.h"

#include <algorithm>

#include "base/check.h"

namespace moeflux {
namespace {

// Scores are taken down together before they leave the range in which sums are exact enough.
constexpr double kUseMax = 1e100;
constexpr uint64_t kMovesLeast = 4;
constexpr uint64_t kMovesAfterPrompt = 256;

}  // namespace

uint64_t moves_after_step(bool with_prompt, uint64_t far_reads) {
  return with_prompt ? kMovesAfterPrompt : std::max(kMovesLeast, far_reads / kFarReadsPerMove);
}

NearPlacement::NearPlacement(const ExpertShape& shape, size_t num_slots,
                             const NearPlacementOptions& options)
    : shape_(shape),
      options_(options),
      scores_(shape.size()),
      uses_(shape.size()),
      slot_of_(shape.size(), kNoSlot),
      is_noted_(shape.size()),
      slots_(num_slots),
      moves_of_(static_cast<size_t>(shape.num_layers)) {
  MF_CHECK(num_slots < kNoSlot);
}

std::optional<NearPlacement::Slot> NearPlacement::slot_of(ExpertKey key) const {
  const Slot slot = slot_of_[shape_.index_of(key)];
  if (slot == kNoSlot || slots_[slot].state != State::kThere) return std::nullopt;
  return slot;
}

void NearPlacement::begin_token() {
  ++tokens_;
  use_ /= options_.decay;
  if (use_ < kUseMax) return;
  for (double& score : scores_) score /= use_;
  use_ = 1.0;
}

void NearPlacement::note(ExpertKey key, double weight) {
  const size_t i = shape_.index_of(key);
  scores_[i] += weight;
  if (is_noted_[i] != 0 || slot_of_[i] != kNoSlot) return;
  newcomers_.push_back(key);
  is_noted_[i] = 1;
}

void NearPlacement::note_use(LayerId layer, std::span<const int32_t> experts) {
  for (const int32_t e : experts) {
    ++uses_[shape_.index_of({layer, ExpertId{e}})];
    note({layer, ExpertId{e}}, use_);
  }
}

void NearPlacement::note_prompt(LayerId layer, std::span<const int32_t> experts, int64_t tokens) {
  const double remembered = 1.0 / (1.0 - std::min(options_.decay, 0.999));
  const double weight =
      options_.prompt_weight * use_ * std::min(1.0, remembered / static_cast<double>(tokens));
  for (const int32_t e : experts) note({layer, ExpertId{e}}, weight);
}

void NearPlacement::seed(LayerId layer, std::span<const double> uses) {
  MF_CHECK(uses.size() <= static_cast<size_t>(shape_.num_experts));
  for (size_t e = 0; e < uses.size(); ++e) {
    scores_[shape_.index_of({layer, ExpertId{static_cast<int32_t>(e)}})] += uses[e] * use_;
  }
}

void NearPlacement::rank(std::vector<ExpertKey>& experts) const {
  std::ranges::stable_sort(experts, std::greater(),
                           [&](ExpertKey key) { return scores_[shape_.index_of(key)]; });
}

void NearPlacement::put(ExpertKey key, Slot slot) {
  slots_[slot] = {key, State::kComing};
  slot_of_[shape_.index_of(key)] = slot;
}

void NearPlacement::describe(ExpertMap& map) const {
  for (const Entry& entry : slots_) {
    if (entry.state != State::kThere) continue;
    map.places[shape_.index_of(entry.key)] = ExpertPlace::kDevice;
  }
  if (map.uses.empty()) map.uses.assign(uses_.begin(), uses_.end());
}

std::optional<NearPlacement::Slot> NearPlacement::fill(ExpertKey key) {
  MF_CHECK(slot_of_[shape_.index_of(key)] == kNoSlot);
  if (filled_ == slots_.size()) return std::nullopt;
  const auto slot = static_cast<Slot>(filled_++);
  put(key, slot);
  return slot;
}

void NearPlacement::list_victims(size_t most) {
  victims_.clear();
  for (size_t s = 0; s < filled_; ++s) {
    if (slots_[s].state == State::kThere) victims_.push_back(static_cast<Slot>(s));
  }
  const auto score_of = [&](Slot s) { return scores_[shape_.index_of(slots_[s].key)]; };
  const size_t listed = std::min(most, victims_.size());
  std::partial_sort(victims_.begin(), victims_.begin() + static_cast<std::ptrdiff_t>(listed),
                    victims_.end(), [&](Slot a, Slot b) {
                      return score_of(a) != score_of(b) ? score_of(a) < score_of(b) : a < b;
                    });
  victims_.resize(listed);
}

std::span<const NearPlacement::Move> NearPlacement::choose_moves(
    size_t most, const std::function<bool(ExpertKey)>& may_come) {
  moves_.clear();
  const auto score_of = [&](ExpertKey key) { return scores_[shape_.index_of(key)]; };
  std::ranges::sort(newcomers_, [&](ExpertKey a, ExpertKey b) {
    if (score_of(a) != score_of(b)) return score_of(a) > score_of(b);
    return shape_.index_of(a) < shape_.index_of(b);
  });
  list_victims(most);
  moves_.reserve(std::min(most, newcomers_.size()));  // memory may run out until here
  std::ranges::fill(moves_of_, 0);
  size_t victim = 0;
  for (const ExpertKey key : newcomers_) {
    if (moves_.size() == most) break;
    if (!may_come(key)) continue;
    if (const std::optional<Slot> empty = fill(key)) {
      moves_.push_back({key, std::nullopt, *empty});
      continue;
    }
    int32_t& moves_of_layer = moves_of_[static_cast<size_t>(index(key.layer))];
    if (moves_of_layer == options_.moves_per_layer) continue;
    if (victim == victims_.size()) break;
    const Slot slot = victims_[victim];
    const ExpertKey out = slots_[slot].key;
    if (score_of(key) <= options_.margin * score_of(out)) break;  // later ones are worth less
    ++victim;
    ++moves_of_layer;
    slot_of_[shape_.index_of(out)] = kNoSlot;
    put(key, slot);
    moves_.push_back({key, out, slot});
  }
  for (const ExpertKey key : newcomers_) is_noted_[shape_.index_of(key)] = 0;
  newcomers_.clear();
  return moves_;
}

void NearPlacement::arrived(Slot slot) {
  MF_CHECK(slots_[slot].state == State::kComing);
  slots_[slot].state = State::kThere;
}

}  // namespace moeflux
