// Which steps a helper takes part in, and what has come of it: for stores whose experts lie partly
// in the host's memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "backend/expert_helper.h"
#include "base/step_rows.h"
#include "experts/site_choice.h"

namespace moeflux {

struct HelperOptions {
  /// Computes experts in the host's memory; null: the device does. Must outlive the store.
  ExpertHelper* helper = nullptr;
  /// In every step that is short enough, not only where that is faster.
  bool always = false;
};

/// Thread-compatible.
class HelpedSteps {
 public:
  explicit HelpedSteps(const HelperOptions& options) : options_(options) {}

  void begin_step(std::span<const StepRows> rows) {
    int64_t count = 0;
    for (const StepRows& part : rows) count += part.rows;
    is_short_ = options_.helper != nullptr && count <= options_.helper->rows_max();
    if (!is_short_) return;
    is_helped_ = options_.always || choice_.begin_step(count) == ExpertSite::kHelper;
    begin_ = Clock::now();
  }
  void end_step() {
    if (!is_short_) return;
    if (is_helped_) ++count_;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    if (!options_.always) choice_.end_step(seconds);
  }
  /// The helper, if it takes part in the step at hand, or null.
  ExpertHelper* helper() const { return is_short_ && is_helped_ ? options_.helper : nullptr; }
  uint64_t count() const { return count_; }

 private:
  using Clock = std::chrono::steady_clock;

  HelperOptions options_;
  SiteChoice choice_;
  Clock::time_point begin_;
  bool is_short_ = false;
  bool is_helped_ = false;
  uint64_t count_ = 0;
};

}  // namespace moeflux
