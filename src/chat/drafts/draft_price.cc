#include "chat/drafts/draft_price.h"

#include <algorithm>
#include <cmath>

namespace moeflux {
namespace {

// A measurement moves what is known by a quarter: a text that changes is noticed within ten steps.
constexpr double kWeight = 0.25;
constexpr int64_t kWaitMin = 16;
constexpr int64_t kWaitMax = 1024;
// A gain that is smaller is within what steps differ by.
constexpr double kGainMin = 1.05;
// Where experts come over a bus or from a drive, a step of several rows may take as long as twenty
// of one: what is tried has to be small beside the text.
constexpr double kLossMax = 0.02;
// Drafts may lose what they have earned, but no more than so many steps of one row.
constexpr double kBankSteps = 32.0;
constexpr int64_t kFirstRows = 8;

void move_towards(double& known, double measured) { known += kWeight * (measured - known); }

}  // namespace

DraftCounts& DraftCounts::operator+=(const DraftCounts& more) {
  drafts += more.drafts;
  drafted += more.drafted;
  accepted += more.accepted;
  seconds += more.seconds;
  drafting_seconds += more.drafting_seconds;
  plain_seconds += more.plain_seconds;
  return *this;
}

DraftCounts operator-(const DraftCounts& all, const DraftCounts& before) {
  return {.drafts = all.drafts - before.drafts,
          .drafted = all.drafted - before.drafted,
          .accepted = all.accepted - before.accepted,
          .seconds = all.seconds - before.seconds,
          .drafting_seconds = all.drafting_seconds - before.drafting_seconds,
          .plain_seconds = all.plain_seconds - before.plain_seconds};
}

// Until it is known better, a source is as often right as it says.
DraftPrice::DraftPrice() {
  for (size_t i = 0; i < kLevels; ++i) {
    levels_[i] = (static_cast<double>(i) + 0.5) / static_cast<double>(kLevels);
  }
}

size_t DraftPrice::level_of(float confidence) {
  const auto level = static_cast<int64_t>(confidence * static_cast<float>(kLevels));
  return static_cast<size_t>(std::clamp<int64_t>(level, 0, int64_t{kLevels} - 1));
}

void DraftPrice::note(const Step& step) {
  Size& size = sizes_[size_of(step.rows)];
  const auto rows = static_cast<double>(step.rows);
  if (size.seconds == 0.0) {
    size = {.seconds = step.seconds, .rows = rows};
  } else {
    // The first step of so many rows makes what later ones find: memory, and a GPU's graph.
    if (step.seconds < size.seconds) move_towards(size.seconds, step.seconds);
    move_towards(size.seconds, step.seconds);
    move_towards(size.rows, rows);
  }
  const double all_seconds = step.seconds + step.drafting_seconds;
  all_seconds_ += all_seconds + step.follow_seconds;
  if ((step.rows > 1 || all_seconds > step.seconds) && plain_seconds() > 0.0) {
    const double earned = static_cast<double>(1 + step.accepted) * plain_seconds();
    lose(all_seconds - earned, step.origin);
    if (step.origin == DraftOrigin::kOther) {
      source_.spent = (1.0 - kWeight) * source_.spent + all_seconds;
      source_.earned = (1.0 - kWeight) * source_.earned + earned;
    }
  }
  lose(step.follow_seconds, step.origin);
  if (step.origin != DraftOrigin::kOther) return;
  note_source(step);
  if (step.drafted > 0) note_acceptance(step);
}

void DraftPrice::lose(double seconds, DraftOrigin origin) {
  const double least = -kBankSteps * plain_seconds();
  lost_seconds_ = std::max(lost_seconds_ + seconds, least);
  if (origin == DraftOrigin::kText) repeats_lost_ = std::max(repeats_lost_ + seconds, least);
}

void DraftPrice::note_source(const Step& step) {
  if (step.drafting_seconds <= 0.0) return;
  const double each =
      step.drafting_seconds / static_cast<double>(std::max<int64_t>(step.proposed, 1));
  if (source_.proposing_seconds == 0.0) {
    source_.proposing_seconds = each;
  } else {
    move_towards(source_.proposing_seconds, each);
  }
}

// Each accepted draft is a trial that succeeded; the first that was not, one that failed.
void DraftPrice::note_acceptance(const Step& step) {
  const int64_t trials = step.accepted + (step.accepted < step.drafted ? 1 : 0);
  for (int64_t i = 0; i < trials; ++i) {
    const double outcome = i < step.accepted ? 1.0 : 0.0;
    const auto learn = [&](double& acceptance) { acceptance += (outcome - acceptance) / 16; };
    learn(source_.acceptance);
    const auto at = static_cast<size_t>(i);
    if (at < step.confidences.size()) learn(levels_[level_of(step.confidences[at])]);
  }
}

// The most rows whose cost is known, or 1.
int64_t DraftPrice::known_rows() const {
  int64_t rows = 1;
  for (size_t size = 1; size < kSizes; ++size) {
    if (sizes_[size].seconds > 0.0) rows = int64_t{1} << size;
  }
  return rows;
}

bool DraftPrice::is_little(double lost_seconds) const {
  return lost_seconds <= kLossMax * all_seconds_;
}

// Between known sizes a row costs the same as the next; beyond the largest it costs nothing, so
// that more are tried once.
double DraftPrice::cost(int64_t rows) const {
  const auto wanted = static_cast<double>(rows);
  Size known;
  for (const Size& size : sizes_) {
    if (size.seconds == 0.0) continue;
    if (wanted <= size.rows) {
      const double share = (wanted - known.rows) / (size.rows - known.rows);
      return known.seconds + share * (size.seconds - known.seconds);
    }
    known = size;
  }
  return known.seconds;
}

// Steps of more rows than are known are tried at twice as many.
int64_t DraftPrice::rows_to_try() const {
  return std::max(kFirstRows, (may_lose() ? 2 : 1) * known_rows());
}

void DraftPrice::try_again(Trials& trials, bool goes_on, int64_t drafted, int64_t& drafts) const {
  trials.is_trial = false;
  if (goes_on && drafts > 0) {
    trials.wait = kWaitMin;
    trials.skipped = 0;
    return;
  }
  drafts = 0;
  if (++trials.skipped < trials.wait || !may_lose()) return;
  trials.skipped = 0;
  trials.wait = std::min(2 * trials.wait, kWaitMax);
  trials.is_trial = true;
  drafts = std::min(drafted, kFirstRows - 1);
}

// A draft that is wrong behind k right ones costs k + 1 rows of the next step as well, and those
// that this one evaluates again.
template <typename Acceptance>
int64_t DraftPrice::best_length(int64_t most, const Acceptance& acceptance_of, double best_rate,
                                const Repeat& again) const {
  const int64_t lost = again.lost_rows;
  int64_t best = 0;
  double reached = 1.0;  // how likely all drafts so far are right
  double tokens = 1.0;
  double redone = 0.0;  // rows
  for (int64_t drafts = 1; drafts <= most; ++drafts) {
    const double acceptance = acceptance_of(static_cast<size_t>(drafts - 1));
    redone += reached * (1.0 - acceptance) * static_cast<double>(drafts);
    reached *= acceptance;
    tokens += reached;
    double seconds = cost(lost + 1 + drafts);
    if (again.is_redone) {
      const double each = (seconds - plain_seconds()) / static_cast<double>(lost + drafts);
      seconds += (redone + (1.0 - reached) * static_cast<double>(lost)) * std::max(each, 0.0);
    }
    if (tokens > best_rate * seconds) {
      best_rate = tokens / seconds;
      best = drafts;
    }
  }
  return best;
}

int64_t DraftPrice::worth_repeat(const Repeat& repeat) {
  // The first step says what one costs without.
  if (repeat.confidences.empty() || plain_seconds() <= 0.0) return 0;
  const int64_t most = std::min<int64_t>(std::ssize(repeat.confidences), rows_to_try() - 1);
  int64_t drafts = best_length(
      most, [&](size_t i) { return repeat.confidences[i]; }, kGainMin / cost(repeat.lost_rows + 1),
      repeat);
  try_again(repeats_, is_little(repeats_lost_), std::ssize(repeat.confidences), drafts);
  return drafts;
}

double DraftPrice::gain_of_source(int64_t drafts) const {
  const double with = cost(drafts + 1) + static_cast<double>(drafts) * source_.proposing_seconds;
  if (with <= 0.0) return 1.0;
  const double p = std::min(source_.acceptance, 0.999);
  const double tokens = (1.0 - std::pow(p, static_cast<double>(drafts + 1))) / (1.0 - p);
  return tokens * plain_seconds() / with;
}

int64_t DraftPrice::worth_asking(int64_t tokens_max) {
  if (tokens_max == 0 || plain_seconds() <= 0.0) return 0;
  int64_t best = 0;
  double best_gain = kGainMin;
  const auto consider = [&](int64_t drafts) {
    const double found = gain_of_source(drafts);
    if (found <= best_gain) return;
    best_gain = found;
    best = drafts;
  };
  const int64_t most = std::min(tokens_max, rows_to_try() - 1);
  for (int64_t rows = 2; rows <= most; rows *= 2) consider(rows - 1);
  consider(most);
  // Steps that evaluate accepted tokens again, where states have a fixed size, are in no forecast.
  try_again(source_.trials, source_.spent <= source_.earned, tokens_max, best);
  return best;
}

int64_t DraftPrice::worth_rows(std::span<const float> confidences) const {
  const auto drafted = static_cast<int64_t>(confidences.size());
  if (source_.trials.is_trial) return drafted;
  return best_length(drafted, [&](size_t i) { return levels_[level_of(confidences[i])]; },
                     1.0 / cost(1), {});
}

}  // namespace moeflux
