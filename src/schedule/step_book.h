// Remembers steps for the next ones: who had how much of the engine, how long steps take, whether
// they wait for a drive. Is told times and never looks at a clock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/step_policy.h"

namespace moeflux {

/// How texts share the engine: as measured, or always in one of two ways.
enum class Sharing : uint8_t { kAuto, kSteps, kSlices };

struct StepBookOptions {
  Sharing sharing = Sharing::kAuto;
  bool experts_fit = false;  // all of them into memory: then no drive is waited for
  /// A piece of a prompt adds no more to a step of answers than such a step takes without it, or
  /// than the first of these where that is more, and never more than the last. Where prompts of
  /// seconds wait, the first grows to a sixteenth of their time, at most to the second.
  int64_t resident_piece_least_us = 25'000;
  int64_t resident_piece_most_us = 100'000;
  int64_t resident_piece_us = 200'000;
  int64_t drive_step_us = 1'500'000;  // of a whole step where experts come from a drive
  int64_t piece_min = 2;              // tokens, if they take longer too
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
  bool needs_plain_step(const StepView& view) const;
  void note_stall(const StepMeasure& measure);
  void note_plain(int64_t answers, int64_t elapsed_us);
  void note_prompt(int64_t tokens, bool is_beside_answers, int64_t elapsed_us);

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
  double token_us_ = 0.0;         // of a step without a prompt, 0 until there was one,
  int64_t token_answers_ = 0;     // with as many answers;
  uint64_t token_step_ = 0;       // its number
  int64_t prompt_tokens_;
  int64_t waiting_tokens_ = 0;  // of prompts, before the next step
};

}  // namespace moeflux
