// Counts the steps that a helper takes part in and their results: for stores whose experts lie
// partly in the host's memory.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>

#include "backend/expert_helper.h"
#include "base/step_rows.h"
#include "experts/expert_site.h"
#include "experts/tiers/split_choice.h"

namespace moeflux {

struct HelperOptions {
  /// Computes experts in the host's memory; null: the device does. Must outlive the store.
  ExpertHelper* helper = nullptr;
  HelpMode mode = HelpMode::kFastest;
};

/// Thread-compatible.
class HelpedSteps {
 public:
  /// For experts that arrive in an order of their own: one of both takes them all.
  explicit HelpedSteps(const HelperOptions& options)
      : HelpedSteps(options, std::array<DeviceEighths, 2>{kDeviceAlone, 0}, 0) {}
  /// `ways` are those of which HelpMode::kFastest takes the fastest; `shared` is HelpMode::kShared.
  HelpedSteps(const HelperOptions& options, std::span<const DeviceEighths> ways,
              DeviceEighths shared)
      : options_(options), choice_(ways), shared_(shared) {}

  /// From the next step on; does nothing without a helper. Changes no result.
  void set_mode(HelpMode mode) { options_.mode = mode; }
  void begin_step(std::span<const StepRows> rows) {
    int64_t count = 0;
    for (const StepRows& part : rows) count += part.rows;
    is_short_ = options_.helper != nullptr && count <= options_.helper->rows_max();
    eighths_ = is_short_ ? eighths_of(count) : kDeviceAlone;
    begin_ = Clock::now();
  }
  void end_step() {
    if (eighths_ < kDeviceAlone) ++count_;
    if (!is_short_ || options_.mode != HelpMode::kFastest) return;
    choice_.end_step(std::chrono::duration<double>(Clock::now() - begin_).count());
  }
  /// The helper, if it takes part in the step at hand, or null.
  ExpertHelper* helper() const { return eighths_ < kDeviceAlone ? options_.helper : nullptr; }
  /// The part of a layer's experts in the host's memory that the device computes beside the helper.
  DeviceEighths device_eighths() const { return eighths_; }
  uint64_t count() const { return count_; }

 private:
  using Clock = std::chrono::steady_clock;

  DeviceEighths eighths_of(int64_t rows) {
    switch (options_.mode) {
      case HelpMode::kNever:
        return kDeviceAlone;
      case HelpMode::kAlways:
        return 0;
      case HelpMode::kShared:
        return shared_;
      case HelpMode::kFastest:
        return choice_.begin_step(rows);
    }
    __builtin_unreachable();
  }

  HelperOptions options_;
  SplitChoice choice_;
  DeviceEighths shared_;
  Clock::time_point begin_;
  bool is_short_ = false;
  DeviceEighths eighths_ = kDeviceAlone;
  uint64_t count_ = 0;
};

}  // namespace moeflux
