// Remembers steps for the next ones: who had how much of the engine, how long steps take, whether
// they wait for a drive. Is told times and never looks at a clock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "schedule/step_policy.h"

namespace moeflux {

/// How texts share the engine: as measured, or always in one of two ways.
enum class Sharing : uint8_t { kAuto, kSteps, kSlices };

struct StepBookOptions {
  Sharing sharing = Sharing::kAuto;
  bool experts_fit = false;            // all of them into memory: then no drive is waited for
  int64_t resident_step_us = 200'000;  // what a step with a prompt may take beside answers, and
  int64_t drive_step_us = 1'500'000;   // where experts come from a drive
  int64_t piece_min = 16;  // tokens; a smaller one does not pay for the weights that it reads
};

/// The time of a step.
struct StepMeasure {
  int64_t elapsed_us = 0;
  int64_t stall_us = 0;  // of these, waiting for a drive
};

class StepBook {
 public:
  explicit StepBook(const StepBookOptions& options);

  void add(uint64_t id);
  void remove(uint64_t id);

  /// Completes a view of the texts that can go on. A request that comes, or is resumed, has no
  /// claim on what others had before: it begins where the least served of them is.
  void complete(StepView& view);
  /// A step of the plan is over.
  void note(const StepPlan& plan, const StepMeasure& measure);

  uint64_t steps() const { return steps_; }
  bool is_drive_bound() const { return is_drive_bound_; }

 private:
  struct Text {
    uint64_t id = 0;
    int64_t served_us = 0;
    uint64_t last_step = 0;
    bool was_ready = true;
  };

  Text* find(uint64_t id);
  void charge(const StepPlan& plan, int64_t elapsed_us);
  void note_stall(const StepMeasure& measure);
  void note_prompt(int64_t tokens, int64_t elapsed_us);

  static constexpr int64_t kPromptTokensBegin = 64;

  const StepBookOptions options_;
  std::vector<Text> texts_;
  int64_t least_served_us_ = 0;  // of those that could go on, never less than before
  uint64_t steps_ = 0;
  std::optional<SliceView> slice_;
  bool was_alone_ = false;
  bool is_drive_bound_ = false;
  double recent_us_ = 0.0;        // of steps; what was long ago counts less
  double recent_stall_us_ = 0.0;  // the same
  double token_us_ = 0.0;         // of a step without a prompt
  int64_t prompt_tokens_;
};

}  // namespace moeflux
