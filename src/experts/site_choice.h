// Who computes experts that lie in the host's memory, where the device and a helper give the same
// bits: whoever is faster, found out by letting both take steps. Nothing is predicted, so nothing
// that a prediction leaves out can make the choice wrong.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "experts/expert_site.h"

namespace moeflux {

/// Pure: told of time, it never looks at a clock. Steps of about as many rows share a choice.
class SiteChoice {
 public:
  /// Who takes the step of so many rows, at least one, that begins now.
  ExpertSite begin_step(int64_t rows);
  /// What the step that begin_step() began last took. A step that failed has no end.
  void end_step(double seconds);

 private:
  /// Steps that a site takes in a row while it is tried. The first is not counted: the device has
  /// to plan such steps anew, caches hold what the other site left.
  static constexpr size_t kTrialSteps = 4;
  static constexpr size_t kSamples = kTrialSteps - 1;
  /// Steps of the faster site before the other is tried again: doubled each time it stays faster.
  static constexpr uint64_t kStepsFirst = 64;
  static constexpr uint64_t kStepsMost = 2048;
  static constexpr size_t kSizes = 8;  // rows 1, 2 to 3, 4 to 7 and so on

  /// The last seconds that one site took.
  struct Samples {
    std::array<double, kSamples> seconds{};
    size_t count = 0;  // of all time

    void add(double value) { seconds[count++ % kSamples] = value; }
    bool is_full() const { return count >= kSamples; }
    double median() const;
  };
  struct Size {
    std::array<Samples, 2> of_site;  // by ExpertSite
    ExpertSite now = ExpertSite::kDevice;
    bool is_trial = true;
    size_t steps = 0;  // of this site in a row
    uint64_t steps_until_trial = kStepsFirst;
  };

  static ExpertSite other(ExpertSite site) {
    return site == ExpertSite::kDevice ? ExpertSite::kHelper : ExpertSite::kDevice;
  }
  void end_trial(Size& size);

  std::array<Size, kSizes> sizes_;
  size_t at_ = 0;  // the size of the step that began last
};

}  // namespace moeflux
