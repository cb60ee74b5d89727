// How experts that lie in the host's memory are divided between a device and a helper that gives
// the same bits: the fastest way of several, found out by letting each take steps. Nothing is
// predicted, so nothing that a prediction leaves out can make the choice wrong.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace moeflux {

/// Eighths of a layer's experts in the host's memory that the device computes, the helper the
/// others.
using DeviceEighths = int32_t;
/// The device by itself: the host has no part in the step.
constexpr DeviceEighths kDeviceAlone = 8;

/// Pure: told of time, it never looks at a clock. Steps of about as many rows share a choice.
//
// A contest gives every way runs of a few steps in turn, there and back, so that what drifts
// meanwhile favours nobody. A way that is clearly slower leaves. The winner takes all steps until a
// trial of one other way, which leads to a contest of both if it looks faster. Trials are so far
// apart that they cost a two-hundredth of the time.
class SplitChoice {
 public:
  /// At least one way, in the order in which they are tried first.
  explicit SplitChoice(std::span<const DeviceEighths> ways);

  /// How the step of so many rows, at least one, that begins now is divided.
  DeviceEighths begin_step(int64_t rows);
  /// Records the seconds of the step that begin_step() began last. A step that failed has no end.
  void end_step(double seconds);

 private:
  /// Steps of a run while a way is tried. The first is not counted: the device has to plan such
  /// steps anew, caches hold what another way left.
  static constexpr size_t kTrialSteps = 4;
  static constexpr size_t kLongRunSteps = 8;  // of a contest after its first round
  static constexpr size_t kSamples = 24;
  static constexpr double kTrialCost = 0.005;  // of the time between two trials
  static constexpr double kStepsUntilTrialLeast = 64.0;
  static constexpr double kStepsUntilTrialMost = 4096.0;
  static constexpr size_t kSizes = 8;  // rows 1, 2 to 3, 4 to 7 and so on

  struct Estimate {
    double mean = 0.0;
    double variance = 0.0;  // of one sample, over the mean's square
  };
  struct Way {
    std::array<double, kSamples> seconds{};  // the last ones, in a ring
    size_t count = 0;                        // of all since clear()
    double trial_seconds = 0.0;              // the first kTrialSteps of its last run
    double first_seconds = 0.0;              // the first of them

    void add(double value) { seconds[count++ % kSamples] = value; }
    size_t num_samples() const { return count < kSamples ? count : kSamples; }
    Estimate estimate() const;
  };
  enum class Mode : uint8_t { kContest, kSettled, kTrial };
  struct Size {
    std::vector<Way> ways;
    std::vector<size_t> contenders;  // in the order of this round
    Mode mode = Mode::kContest;
    size_t turn = 0;  // of contenders
    size_t round = 0;
    size_t now = 0;
    size_t best = 0;
    size_t next_trial = 0;
    size_t steps = 0;  // of this run
    size_t run_steps = kTrialSteps;
    double settled_mean = 0.0;
  };

  void end_run(Size& size) const;
  void begin_contest(Size& size, std::vector<size_t> contenders) const;
  void end_turn(Size& size) const;
  void drop_slower(Size& size) const;
  void settle(Size& size, size_t best) const;
  void plan_next_trial(Size& size) const;
  void look_for_loss(Size& size) const;
  void begin_run(Size& size, size_t way, size_t steps) const;

  std::vector<DeviceEighths> ways_;
  std::array<Size, kSizes> sizes_;
  size_t at_ = 0;  // the size of the step that began last
};

}  // namespace moeflux
