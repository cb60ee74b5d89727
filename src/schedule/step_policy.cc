#include "schedule/step_policy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <tuple>

namespace moeflux {
namespace {

// A wait as long as this makes a prompt count as half as long.
constexpr double kAgingUs = 10e6;

class AdmissionChoice {
 public:
  AdmissionChoice(const StepLimits& limits, const AdmissionView& view)
      : limits_(limits), view_(view), active_(view.active) {
    for (const ActiveView& text : active_) bytes_ += text.state_bytes;
    for (const WaitingView& text : view.waiting) bytes_ += text.saved_bytes;
  }

  AdmissionPlan plan() {
    while (active_.size() > 1 && bytes_ > limits_.state_bytes_max) preempt(active_.end() - 1);
    // A request that has just been preempted would only be preempted again.
    if (!plan_.preempt.empty()) return plan_;
    for (const WaitingView& text : view_.waiting) {
      if (!has_room(text) && !(plan_.admit.empty() && make_room(text))) break;
      bytes_ += text.state_bytes;
      bytes_ -= text.saved_bytes;
      plan_.admit.push_back(text.id);
      ++begun_;
    }
    return plan_;
  }

 private:
  using Place = std::vector<ActiveView>::iterator;

  bool has_room(const WaitingView& text) const {
    const size_t running = active_.size() + begun_;
    if (running == 0) return true;
    return running < static_cast<size_t>(limits_.active_max) &&
           bytes_ - text.saved_bytes + text.state_bytes <= limits_.state_bytes_max;
  }

  // All or nothing: who gives way for nothing has lost its place.
  bool make_room(const WaitingView& text) {
    if (view_.now_us - text.since_us < limits_.patience_us) return false;
    const AdmissionChoice before = *this;
    while (!has_room(text)) {
      const Place victim = least_deserving();
      if (victim == active_.end()) {
        active_ = before.active_;
        bytes_ = before.bytes_;
        plan_ = before.plan_;
        return false;
      }
      preempt(victim);
    }
    return true;
  }

  // A parked text, or the one that began first.
  Place least_deserving() {
    Place found = active_.end();
    for (Place text = active_.begin(); text != active_.end(); ++text) {
      const bool may_go = text->is_parked || view_.now_us - text->since_us >= limits_.patience_us;
      if (!may_go) continue;
      const auto rank = [](const ActiveView& of) { return std::tuple(!of.is_parked, of.since_us); };
      if (found == active_.end() || rank(*text) < rank(*found)) found = text;
    }
    return found;
  }

  void preempt(Place text) {
    bytes_ += text->saved_bytes;
    bytes_ -= text->state_bytes;
    plan_.preempt.push_back(text->id);
    active_.erase(text);
  }

  const StepLimits& limits_;
  const AdmissionView& view_;
  std::vector<ActiveView> active_;
  uint64_t bytes_ = 0;
  size_t begun_ = 0;
  AdmissionPlan plan_;
};

double aged_length(const TextView& text, int64_t now_us) {
  return std::log2(static_cast<double>(text.prompt_tokens)) -
         static_cast<double>(now_us - text.waits_since_us) / kAgingUs;
}

/// Puts a step together.
class StepChoice {
 public:
  StepChoice(const StepLimits& limits, const StepView& view) : limits_(limits), view_(view) {
    for (const TextView& text : view.texts) {
      if (text.prompt_tokens == 0) {
        answers_.push_back(&text);
      } else if (!text.behind || !is_in_prompt(*text.behind)) {
        prompts_.push_back(&text);
      }
    }
    std::ranges::stable_sort(prompts_, {}, [&](const TextView* text) {
      return std::tuple(aged_length(*text, view.now_us));
    });
    std::ranges::stable_sort(answers_, {}, &TextView::last_step);
  }

  StepPlan plan() {
    if (answers_.empty() && prompts_.empty()) return {};
    if (view_.is_drive_bound) {
      take_slice();
    } else if (const TextView* text = next_alone()) {
      take_alone(*text);
    } else {
      take_together();
    }
    return plan_;
  }

 private:
  bool is_in_prompt(uint64_t id) const {
    const auto text = std::ranges::find(view_.texts, id, &TextView::id);
    return text != view_.texts.end() && text->prompt_tokens > 0;
  }

  bool has_room() const { return rows_left_ > 0 && answers_left_ > 0; }

  void add(const TextView& text, int64_t tokens) {
    const bool is_prompt = text.prompt_tokens > 0;
    plan_.parts.push_back({.id = text.id, .tokens = tokens, .is_prompt = is_prompt});
    rows_left_ -= tokens;
    --answers_left_;
  }

  void add_answers(bool but_the_last_row) {
    for (const TextView* text : answers_) {
      if (!has_room() || (but_the_last_row && (rows_left_ == 1 || answers_left_ == 1))) return;
      if (!text->alone) add(*text, 1);
    }
  }

  // Every second step at most, so that others go on beside it.
  const TextView* next_alone() const {
    const TextView* found = nullptr;
    bool others = false;
    for (const std::vector<const TextView*>* texts : {&answers_, &prompts_}) {
      for (const TextView* text : *texts) {
        others |= !text->alone;
        if (!text->alone) continue;
        if (found == nullptr || text->last_step < found->last_step) found = text;
      }
    }
    return view_.was_alone && others ? nullptr : found;
  }

  // As much of a prompt as answers can wait for, or as a step can take where there are none.
  int64_t piece(const TextView& text) const {
    const int64_t most = answers_.empty() ? rows_left_ : std::max<int64_t>(1, view_.prompt_tokens);
    return std::min({text.piece_tokens, most, rows_left_});
  }

  void take_alone(const TextView& text) {
    plan_.is_alone = true;
    add(text, text.prompt_tokens > 0 ? piece(text) : 1);
  }

  void take_together() {
    const bool has_prompt = view_.prompt_tokens > 0 &&
                            std::ranges::any_of(prompts_, [](auto* text) { return !text->alone; });
    add_answers(has_prompt);
    int64_t left = plan_.parts.empty() ? rows_left_ : view_.prompt_tokens;
    for (const TextView* text : prompts_) {
      if (text->alone || left <= 0 || !has_room()) continue;
      const int64_t tokens = std::min({text->piece_tokens, left, rows_left_});
      add(*text, tokens);
      left -= tokens;
    }
  }

  // The service that the least served request has had, `but` left out.
  static int64_t least_served_us(const std::vector<const TextView*>& texts, const TextView* but) {
    int64_t least = INT64_MAX;
    for (const TextView* text : texts) {
      if (text != but) least = std::min(least, text->served_us);
    }
    return least;
  }

  // A request that began its slice ahead of another has less of it, down to half: so shares stay
  // even although slices end with whole steps.
  int64_t allowed_us(const TextView& owner, int64_t least_of_others_us) const {
    const int64_t before_us = owner.served_us - view_.slice->elapsed_us;
    const int64_t lead_us = std::max<int64_t>(0, before_us - least_of_others_us);
    return limits_.slice_us - std::min(lead_us, limits_.slice_us / 2);
  }

  // The one in the middle of its slice, or who has waited longest.
  const TextView& next_owner() {
    std::vector<const TextView*> candidates = answers_;
    if (!prompts_.empty()) candidates.push_back(prompts_.front());
    if (view_.slice) {
      const auto owner = std::ranges::find(candidates, view_.slice->id, &TextView::id);
      // A piece of a prompt is as long as a slice.
      if (owner != candidates.end() && (*owner)->prompt_tokens == 0 &&
          view_.slice->elapsed_us + view_.token_us <=
              allowed_us(**owner, least_served_us(candidates, *owner))) {
        return **owner;
      }
    }
    plan_.begins_slice = true;
    const int64_t least_us = least_served_us(candidates, nullptr);
    // Turns keep their order, which bounds a wait: slices that are a little longer or shorter would
    // else put the first of one round last in the next. A request that is ahead by a slice is
    // passed over.
    return **std::ranges::min_element(candidates, {}, [&](const TextView* text) {
      const bool is_ahead = text->served_us - least_us > limits_.slice_us;
      return std::tuple(is_ahead, text->last_step, text->served_us);
    });
  }

  void take_slice() {
    const TextView& owner = next_owner();
    plan_.owner = owner.id;
    if (owner.alone) return take_alone(owner);
    const auto answers = static_cast<int64_t>(answers_.size());
    if (owner.prompt_tokens == 0) {
      // So many choose most experts anyway.
      if (answers >= limits_.sharing_tokens) return add_answers(false);
      return add(owner, 1);
    }
    const int64_t tokens = piece(owner);
    add(owner, std::max<int64_t>(1, std::min(tokens, limits_.rows_max - answers)));
    if (plan_.parts.front().tokens >= limits_.sharing_tokens) add_answers(false);
  }

  const StepLimits& limits_;
  const StepView& view_;
  std::vector<const TextView*> answers_;  // who waits longest first
  std::vector<const TextView*> prompts_;  // the shortest first
  int64_t rows_left_ = limits_.rows_max;
  int64_t answers_left_ = limits_.answers_max;
  StepPlan plan_;
};

}  // namespace

AdmissionPlan plan_admission(const StepLimits& limits, const AdmissionView& view) {
  return AdmissionChoice(limits, view).plan();
}

StepPlan plan_step(const StepLimits& limits, const StepView& view) {
  return StepChoice(limits, view).plan();
}

}  // namespace moeflux
