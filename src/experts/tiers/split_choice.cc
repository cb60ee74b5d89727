#include "experts/tiers/split_choice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace moeflux {
namespace {

// A step that something else held up counts as this many times the median.
constexpr double kMedianTimesMost = 1.5;
// By round: who is slower by so many of the difference of two means leaves.
constexpr std::array kStandardErrors = {3.0, 2.0, 1.0};
// Ways that are closer than this are as good as each other.
constexpr double kCloseShare = 0.01;
// The chosen way has become so much slower that it is time to look at another.
constexpr double kSlowerShare = 0.1;

}  // namespace

SplitChoice::Estimate SplitChoice::Way::estimate() const {
  const size_t n = num_samples();
  if (n == 0) return {};
  std::array<double, kSamples> values = seconds;
  const auto end = values.begin() + static_cast<std::ptrdiff_t>(n);
  std::sort(values.begin(), end);
  const double most = kMedianTimesMost * values[n / 2];
  Estimate estimate;
  for (size_t i = 0; i < n; ++i) {
    values[i] = std::min(values[i], most);
    estimate.mean += values[i] / static_cast<double>(n);
  }
  if (n < 2 || estimate.mean <= 0.0) return estimate;
  for (size_t i = 0; i < n; ++i) {
    const double off = (values[i] - estimate.mean) / estimate.mean;
    estimate.variance += off * off / static_cast<double>(n - 1);
  }
  return estimate;
}

SplitChoice::SplitChoice(std::span<const DeviceEighths> ways) : ways_(ways.begin(), ways.end()) {
  MF_CHECK(!ways_.empty());
  std::vector<size_t> all(ways_.size());
  std::iota(all.begin(), all.end(), size_t{0});
  for (Size& size : sizes_) {
    size.ways.resize(ways_.size());
    begin_contest(size, all);
  }
}

DeviceEighths SplitChoice::begin_step(int64_t rows) {
  MF_CHECK(rows > 0);
  at_ = std::min(static_cast<size_t>(std::bit_width(static_cast<uint64_t>(rows))), kSizes) - 1;
  Size& size = sizes_[at_];
  if (size.steps >= size.run_steps) end_run(size);
  return ways_[size.now];
}

void SplitChoice::end_step(double seconds) {
  Size& size = sizes_[at_];
  Way& way = size.ways[size.now];
  ++size.steps;
  if (size.steps == 1) way.trial_seconds = way.first_seconds = seconds;
  if (size.steps > 1) way.add(seconds);
  if (size.steps > 1 && size.steps <= kTrialSteps) way.trial_seconds += seconds;
  // The cost of going there and back is known once the chosen way has taken its first step.
  if (size.mode != Mode::kSettled) return;
  if (size.steps == 1) plan_next_trial(size);
  if (size.steps % kSamples == 0) look_for_loss(size);
}

void SplitChoice::begin_run(Size& size, size_t way, size_t steps) const {
  size.now = way;
  size.run_steps = steps;
  size.steps = 0;
}

void SplitChoice::end_run(Size& size) const {
  switch (size.mode) {
    case Mode::kContest:
      end_turn(size);
      return;
    case Mode::kSettled: {
      size.mode = Mode::kTrial;
      const size_t rival = size.next_trial;
      size.ways[rival].count = 0;
      begin_run(size, rival, kTrialSteps);
      return;
    }
    case Mode::kTrial: {
      const size_t rival = size.now;
      const double mean = size.ways[rival].estimate().mean;
      if (mean < size.ways[size.best].estimate().mean) {
        begin_contest(size, {size.best, rival});
      } else {
        settle(size, size.best);
      }
      return;
    }
  }
  __builtin_unreachable();
}

void SplitChoice::begin_contest(Size& size, std::vector<size_t> contenders) const {
  for (const size_t way : contenders) size.ways[way].count = 0;
  size.mode = Mode::kContest;
  size.contenders = std::move(contenders);
  size.turn = size.round = 0;
  begin_run(size, size.contenders.front(), kTrialSteps);
}

void SplitChoice::end_turn(Size& size) const {
  if (++size.turn == size.contenders.size()) {
    size.turn = 0;
    drop_slower(size);
    ++size.round;
    std::ranges::reverse(size.contenders);
  }
  if (size.contenders.size() == 1 || size.round == kStandardErrors.size()) {
    const auto mean = [&](size_t way) { return size.ways[way].estimate().mean; };
    settle(size, *std::ranges::min_element(size.contenders, {}, mean));
    return;
  }
  begin_run(size, size.contenders[size.turn], size.round == 0 ? kTrialSteps : kLongRunSteps);
}

// All contenders scatter alike, relative to their means: few samples of each tell together how
// much.
void SplitChoice::drop_slower(Size& size) const {
  std::vector<Estimate> of(size.ways.size());
  size_t best = size.contenders.front();
  double variance = 0.0;
  for (const size_t way : size.contenders) {
    of[way] = size.ways[way].estimate();
    variance += of[way].variance / static_cast<double>(size.contenders.size());
    if (of[way].mean < of[best].mean) best = way;
  }
  const auto samples = [&](size_t way) {
    return static_cast<double>(size.ways[way].num_samples());
  };
  std::erase_if(size.contenders, [&](size_t way) {
    if (way == best) return false;
    const double apart = of[way].mean / of[best].mean - 1.0;
    const double error = std::sqrt(variance * (1.0 / samples(way) + 1.0 / samples(best)));
    return apart > std::max(kCloseShare, kStandardErrors[size.round] * error);
  });
}

void SplitChoice::settle(Size& size, size_t best) const {
  size.mode = Mode::kSettled;
  size.best = best;
  size.settled_mean = size.ways[best].estimate().mean;
  begin_run(size, best, static_cast<size_t>(kStepsUntilTrialMost));
}

// The ways take turns to be tried. Each is tried after so long that its trial, the first step back
// included, costs no more than kTrialCost of it.
void SplitChoice::plan_next_trial(Size& size) const {
  if (size.ways.size() == 1) return;
  do {
    size.next_trial = (size.next_trial + 1) % size.ways.size();
  } while (size.next_trial == size.best);
  const double mean = size.settled_mean;
  const double trial =
      size.ways[size.next_trial].trial_seconds + size.ways[size.best].first_seconds;
  const double lost = trial - static_cast<double>(kTrialSteps + 1) * mean;
  const double steps = mean > 0.0 ? lost / (kTrialCost * mean) : kStepsUntilTrialLeast;
  size.run_steps =
      static_cast<size_t>(std::clamp(steps, kStepsUntilTrialLeast, kStepsUntilTrialMost));
}

// Not more often than trials may come.
void SplitChoice::look_for_loss(Size& size) const {
  const double mean = size.ways[size.best].estimate().mean;
  if (static_cast<double>(size.steps) < kStepsUntilTrialLeast) return;
  if (mean <= (1.0 + kSlowerShare) * size.settled_mean) return;
  size.settled_mean = mean;
  size.run_steps = size.steps;
}

}  // namespace moeflux
