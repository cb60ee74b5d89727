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
constexpr double kLossMax = 0.01;
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
  double& seconds = seconds_[size_of(step.rows)];
  if (seconds == 0.0) {
    seconds = step.seconds;
  } else {
    // The first step of so many rows makes what later ones find: memory, and a GPU's graph.
    if (step.seconds < seconds) move_towards(seconds, step.seconds);
    move_towards(seconds, step.seconds);
  }
  const double all_seconds = step.seconds + step.drafting_seconds;
  all_seconds_ += all_seconds + step.follow_seconds;
  Known& of = known(step.origin);
  if (step.drafting_seconds > 0.0) {
    const double each =
        step.drafting_seconds / static_cast<double>(std::max<int64_t>(step.proposed, 1));
    if (of.proposing_seconds == 0.0) {
      of.proposing_seconds = each;
    } else {
      move_towards(of.proposing_seconds, each);
    }
  }
  if ((step.rows > 1 || all_seconds > step.seconds) && plain_seconds() > 0.0) {
    const double earned = static_cast<double>(1 + step.accepted) * plain_seconds();
    of.spent = (1.0 - kWeight) * of.spent + all_seconds;
    of.earned = (1.0 - kWeight) * of.earned + earned;
    lost_seconds_ += all_seconds - earned;
  }
  lost_seconds_ += step.follow_seconds;
  if (step.drafted > 0) note_acceptance(step);
}

// Each accepted draft is a trial that succeeded; the first that was not, one that failed. A text
// stops repeating itself for good, a source errs here and there.
void DraftPrice::note_acceptance(const Step& step) {
  const bool has_failed = step.accepted < step.drafted;
  double& acceptance = known(step.origin).acceptance;
  for (int64_t i = 0; i < step.accepted; ++i) acceptance += (1.0 - acceptance) / 16;
  if (has_failed) {
    acceptance -= acceptance * (step.origin == DraftOrigin::kText ? kWeight : 1.0 / 16);
  }
  const auto trials = static_cast<size_t>(step.accepted + (has_failed ? 1 : 0));
  for (size_t i = 0; i < std::min(trials, step.confidences.size()); ++i) {
    const double outcome = i < static_cast<size_t>(step.accepted) ? 1.0 : 0.0;
    double& level = levels_[level_of(step.confidences[i])];
    level += (outcome - level) / 16;
  }
}

// The most rows whose cost is known, or 1.
int64_t DraftPrice::known_rows() const {
  int64_t rows = 1;
  for (size_t size = 1; size < kSizes; ++size) {
    if (seconds_[size] > 0.0) rows = int64_t{1} << size;
  }
  return rows;
}

bool DraftPrice::may_lose() const { return lost_seconds_ <= kLossMax * all_seconds_; }

// A size that is not known costs what the next smaller does, so that it is tried once.
double DraftPrice::cost(int64_t rows) const {
  double known = 0.0;
  for (size_t size = 0; size <= size_of(rows); ++size) {
    if (seconds_[size] > 0.0) known = seconds_[size];
  }
  return known;
}

double DraftPrice::gain(int64_t drafts, DraftOrigin origin) const {
  const double plain = plain_seconds();
  const double with =
      cost(drafts + 1) + static_cast<double>(drafts) * known(origin).proposing_seconds;
  if (plain <= 0.0 || with <= 0.0) return 1.0;
  const double p = std::min(known(origin).acceptance, 0.999);
  const double tokens = (1.0 - std::pow(p, static_cast<double>(drafts + 1))) / (1.0 - p);
  return tokens * plain / with;
}

int64_t DraftPrice::worth(int64_t drafted, DraftOrigin origin) {
  if (drafted == 0) return 0;
  if (plain_seconds() <= 0.0) return 0;  // the first step says what one costs without
  Known& of = known(origin);
  int64_t best = 0;
  double best_gain = kGainMin;
  const auto consider = [&](int64_t drafts) {
    const double found = gain(drafts, origin);
    if (found <= best_gain) return;
    best_gain = found;
    best = drafts;
  };
  // Steps of more rows than are known are tried at twice as many.
  const int64_t most =
      std::min(drafted, std::max(kFirstRows, (may_lose() ? 2 : 1) * known_rows()) - 1);
  for (int64_t rows = 2; rows <= most; rows *= 2) consider(rows - 1);
  consider(most);
  // Steps that evaluate accepted tokens again, where states have a fixed size, are in no forecast.
  of.is_trial = false;
  if (best > 0 && of.spent <= of.earned) {
    of.wait = kWaitMin;
    of.skipped = 0;
    return best;
  }
  if (++of.skipped < of.wait || !may_lose()) return 0;
  of.skipped = 0;
  of.wait = std::min(2 * of.wait, kWaitMax);
  of.is_trial = true;
  return std::min(drafted, kFirstRows - 1);
}

int64_t DraftPrice::worth_rows(std::span<const float> confidences) const {
  const auto drafted = static_cast<int64_t>(confidences.size());
  if (known(DraftOrigin::kOther).is_trial) return drafted;
  int64_t best = 0;
  double best_rate = 0.0;
  double reached = 1.0;  // how likely all drafts so far are right
  double tokens = 1.0;
  for (int64_t drafts = 0; drafts <= drafted; ++drafts) {
    const double seconds = cost(drafts + 1);
    if (seconds > 0.0 && tokens > best_rate * seconds) {
      best_rate = tokens / seconds;
      best = drafts;
    }
    if (drafts == drafted) break;
    reached *= levels_[level_of(confidences[static_cast<size_t>(drafts)])];
    tokens += reached;
  }
  return best;
}

}  // namespace moeflux
