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
  plain_seconds += more.plain_seconds;
  return *this;
}

DraftCounts operator-(const DraftCounts& all, const DraftCounts& before) {
  return {.drafts = all.drafts - before.drafts,
          .drafted = all.drafted - before.drafted,
          .accepted = all.accepted - before.accepted,
          .seconds = all.seconds - before.seconds,
          .plain_seconds = all.plain_seconds - before.plain_seconds};
}

void DraftPrice::note(const Step& step) {
  double& seconds = seconds_[size_of(step.rows)];
  if (seconds == 0.0) {
    seconds = step.seconds;
  } else {
    move_towards(seconds, step.seconds);
  }
  all_seconds_ += step.seconds;
  if (step.rows > 1 && plain_seconds() > 0.0) {
    const double earned = static_cast<double>(1 + step.accepted) * plain_seconds();
    spent_ = (1.0 - kWeight) * spent_ + step.seconds;
    earned_ = (1.0 - kWeight) * earned_ + earned;
    lost_seconds_ += step.seconds - earned;
  }
  if (step.drafted == 0) return;
  // Each accepted draft is a trial that succeeded; the first that was not, one that failed.
  for (int64_t i = 0; i < step.accepted; ++i) acceptance_ += (1.0 - acceptance_) / 16;
  if (step.accepted < step.drafted) move_towards(acceptance_, 0.0);
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

double DraftPrice::gain(int64_t drafts) const {
  const double plain = plain_seconds();
  const double with = cost(drafts + 1);
  if (plain <= 0.0 || with <= 0.0) return 1.0;
  const double p = std::min(acceptance_, 0.999);
  const double tokens = (1.0 - std::pow(p, static_cast<double>(drafts + 1))) / (1.0 - p);
  return tokens * plain / with;
}

int64_t DraftPrice::worth(int64_t drafted) {
  if (drafted == 0) return 0;
  if (plain_seconds() <= 0.0) return 0;  // the first step says what one costs without
  int64_t best = 0;
  double best_gain = kGainMin;
  const auto consider = [&](int64_t drafts) {
    const double found = gain(drafts);
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
  if (best > 0 && spent_ <= earned_) {
    wait_ = kWaitMin;
    skipped_ = 0;
    return best;
  }
  if (++skipped_ < wait_ || !may_lose()) return 0;
  skipped_ = 0;
  wait_ = std::min(2 * wait_, kWaitMax);
  return std::min(drafted, kFirstRows - 1);
}

}  // namespace moeflux
