#include "experts/site_choice.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace moeflux {

double SiteChoice::Samples::median() const {
  std::array<double, kSamples> sorted = seconds;
  std::ranges::sort(sorted);
  return sorted[kSamples / 2];
}

ExpertSite SiteChoice::begin_step(int64_t rows) {
  MF_CHECK(rows > 0);
  at_ = std::min(static_cast<size_t>(std::bit_width(static_cast<uint64_t>(rows))), kSizes) - 1;
  Size& size = sizes_[at_];
  const size_t most = size.is_trial ? kTrialSteps : size.steps_until_trial;
  if (size.steps >= most) {
    if (size.is_trial) {
      end_trial(size);
    } else {
      size.now = other(size.now);
      size.is_trial = true;
    }
    size.steps = 0;
  }
  return size.now;
}

// The other site has yet to be tried, or both have been: the faster one goes on.
void SiteChoice::end_trial(Size& size) {
  const ExpertSite rival = other(size.now);
  const Samples& tried = size.of_site[static_cast<size_t>(size.now)];
  const Samples& before = size.of_site[static_cast<size_t>(rival)];
  if (!before.is_full()) {
    size.now = rival;
    return;
  }
  const bool changes = tried.median() < before.median();
  size.steps_until_trial = changes ? kStepsFirst : std::min(2 * size.steps_until_trial, kStepsMost);
  if (!changes) size.now = rival;
  size.is_trial = false;
}

void SiteChoice::end_step(double seconds) {
  Size& size = sizes_[at_];
  if (++size.steps > 1) size.of_site[static_cast<size_t>(size.now)].add(seconds);
}

}  // namespace moeflux
