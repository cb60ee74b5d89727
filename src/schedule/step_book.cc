#include "schedule/step_book.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace moeflux {
namespace {

// Stalls of so long ago count half.
constexpr double kStallMemoryUs = 2e6;
// Where steps wait longer than the first share for a drive, slices are better; where less than the
// second, common steps are. Between them it stays as it is.
constexpr double kDriveBoundShare = 0.2;
constexpr double kResidentShare = 0.1;
// The latest step's part of what the next is expected to take.
constexpr double kNewShare = 0.25;
// The same as StepBookOptions::piece_min, of experts.
constexpr int64_t kDrivePieceMin = 64;
// A piece's part of the time that all waiting prompts take.
constexpr double kWaitingShare = 1.0 / 16.0;
// Among steps with pieces of prompts, so many to one without: it tells what answers take alone.
constexpr uint64_t kStepsToPlain = 32;

}  // namespace

StepBook::StepBook(const StepBookOptions& options)
    : options_(options), prompt_tokens_(std::max(kPromptTokensBegin, options.piece_min)) {
  is_drive_bound_ = options_.sharing == Sharing::kSlices ||
                    (options_.sharing == Sharing::kAuto && !options_.experts_fit);
  // The behaviour of an empty cache is not known: as if it was waited for half the time.
  recent_us_ = kStallMemoryUs;
  recent_stall_us_ = kStallMemoryUs / 2;
}

void StepBook::add(uint64_t id) { texts_.push_back({.id = id, .served_us = least_served_us_}); }

void StepBook::remove(uint64_t id) {
  std::erase_if(texts_, [id](const Text& text) { return text.id == id; });
}

StepBook::Text* StepBook::find(uint64_t id) {
  const auto text = std::ranges::find(texts_, id, &Text::id);
  return text == texts_.end() ? nullptr : &*text;
}

void StepBook::complete(StepView& view) {
  waiting_tokens_ = 0;
  for (const TextView& text : view.texts) waiting_tokens_ += text.prompt_tokens;
  std::optional<int64_t> least;
  for (Text& text : texts_) {
    const auto shown = std::ranges::find(view.texts, text.id, &TextView::id);
    const bool is_ready = shown != view.texts.end();
    if (is_ready && !text.was_ready) text.served_us = std::max(text.served_us, least_served_us_);
    text.was_ready = is_ready;
    if (!is_ready) continue;
    shown->served_us = text.served_us;
    shown->last_step = text.last_step;
    least = std::min(least.value_or(text.served_us), text.served_us);
  }
  if (least) least_served_us_ = std::max(least_served_us_, *least);
  view.steps = steps_;
  view.is_drive_bound = is_drive_bound_;
  view.prompt_tokens = needs_plain_step(view) ? 0 : prompt_tokens_;
  view.token_us = static_cast<int64_t>(token_us_);
  view.was_alone = was_alone_;
  view.slice = slice_;
}

// Whether the time of a step of these answers alone is to be measured.
bool StepBook::needs_plain_step(const StepView& view) const {
  if (is_drive_bound_) return false;
  const int64_t answers =
      std::ranges::count_if(view.texts, [](const auto& text) { return text.prompt_tokens == 0; });
  if (answers == 0) return false;
  const bool is_like_last = 2 * answers <= 3 * token_answers_ && 2 * token_answers_ <= 3 * answers;
  return token_us_ == 0.0 || !is_like_last || steps_ - token_step_ >= kStepsToPlain;
}

void StepBook::note(const StepPlan& plan, const StepMeasure& measure) {
  MF_CHECK(!plan.parts.empty());
  ++steps_;
  was_alone_ = plan.is_alone;
  charge(plan, measure.elapsed_us);
  int64_t prompt_tokens = 0;
  int64_t answers = 0;
  for (const StepPart& part : plan.parts) {
    prompt_tokens += part.is_prompt ? part.tokens : 0;
    answers += part.is_prompt ? 0 : 1;
  }
  if (prompt_tokens > 0) {
    note_prompt(prompt_tokens, answers > 0, measure.elapsed_us);
  } else {
    note_plain(answers, measure.elapsed_us);
  }
  note_stall(measure);
}

// A slice is its owner's time, whoever rides along; a common step everybody's.
void StepBook::charge(const StepPlan& plan, int64_t elapsed_us) {
  for (const StepPart& part : plan.parts) {
    Text* text = find(part.id);
    if (text == nullptr) continue;
    text->last_step = steps_;
    if (!plan.owner || *plan.owner == part.id) text->served_us += elapsed_us;
  }
  if (!plan.owner) {
    slice_.reset();
  } else {
    const int64_t before = plan.begins_slice || !slice_ ? 0 : slice_->elapsed_us;
    slice_ = {.id = *plan.owner, .elapsed_us = before + elapsed_us};
  }
}

void StepBook::note_stall(const StepMeasure& measure) {
  if (options_.sharing != Sharing::kAuto || options_.experts_fit) return;
  const auto elapsed = static_cast<double>(measure.elapsed_us);
  const double kept = std::exp2(-elapsed / kStallMemoryUs);
  recent_us_ = kept * recent_us_ + elapsed;
  recent_stall_us_ = kept * recent_stall_us_ + static_cast<double>(measure.stall_us);
  const double share = recent_stall_us_ / recent_us_;
  const bool was_drive_bound = is_drive_bound_;
  if (share > kDriveBoundShare) is_drive_bound_ = true;
  if (share < kResidentShare) is_drive_bound_ = false;
  if (is_drive_bound_ == was_drive_bound) return;
  slice_.reset();
  prompt_tokens_ = kPromptTokensBegin;
}

void StepBook::note_plain(int64_t answers, int64_t elapsed_us) {
  const auto elapsed = static_cast<double>(elapsed_us);
  token_us_ += (answers != token_answers_ ? 1.0 : kNewShare) * (elapsed - token_us_);
  token_answers_ = answers;
  token_step_ = steps_;
}

// On an H200 a step of the 35B with 64 rows takes 10 ms and one with 200 21: short pieces cost
// those that wait for tokens more than one long piece does. Pieces that double a step's time had
// prompts of 200 tokens, 16 a second, wait for up to 6.6 s. Where prompts of seconds wait, pieces
// of some hundred tokens would have them wait for several times as long.
//
// The next piece is as long as would have taken the time that there is, at most twice this one.
// A step has costs that do not grow with its tokens; so this errs to the short side and comes
// closer with every step.
void StepBook::note_prompt(int64_t tokens, bool is_beside_answers, int64_t elapsed_us) {
  auto wanted_us = static_cast<double>(options_.drive_step_us);
  auto piece_us = static_cast<double>(elapsed_us);
  if (!is_drive_bound_) {
    wanted_us = static_cast<double>(options_.resident_piece_us);
    const double waiting_us =
        static_cast<double>(waiting_tokens_) / static_cast<double>(tokens) * piece_us;
    const auto least_us = static_cast<double>(options_.resident_piece_least_us);
    const double floor_us =
        std::clamp(kWaitingShare * waiting_us, least_us,
                   std::max(least_us, static_cast<double>(options_.resident_piece_most_us)));
    if (token_us_ > 0.0) wanted_us = std::min(wanted_us, std::max(token_us_, floor_us));
    if (is_beside_answers) piece_us -= token_us_;
  }
  if (tokens < prompt_tokens_ && piece_us <= wanted_us) {
    // It was no whole piece, and says little about a longer one. But prompts that are short, or
    // that are found in a cache, must not be a few in a step for ever.
    if (prompt_tokens_ < kPromptTokensBegin) prompt_tokens_ = 2 * prompt_tokens_;
    return;
  }
  const double factor = std::min(2.0, wanted_us / std::max(1.0, piece_us));
  const auto next = static_cast<int64_t>(static_cast<double>(tokens) * factor);
  const int64_t least = is_drive_bound_ ? kDrivePieceMin : options_.piece_min;
  prompt_tokens_ = std::clamp<int64_t>(next, least, int64_t{1} << 20);
}

}  // namespace moeflux
