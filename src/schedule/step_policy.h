// Decides which requests begin, are preempted, and take part in the engine's next step: pure
// functions of a snapshot. They know numbers, neither texts nor clocks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace moeflux {

// Times are microseconds of one clock.

/// Limits of an engine, and of its options.
struct StepLimits {
  int64_t active_max = 8;        // texts that run
  uint64_t state_bytes_max = 0;  // of their states
  int64_t rows_max = 512;        // tokens of a step
  int64_t answers_max = 512;     // rows of logits of a step
  int64_t sharing_tokens = 32;   // so many choose most experts of a layer: more of them read little
  int64_t slice_us = 1'000'000;  // of one text, where experts come from a drive
  int64_t patience_us = 30'000'000;  // who has waited so long displaces who has run as long
};

// --- Admission ---

/// A text that waits: for the first time, or since it was displaced.
struct WaitingView {
  uint64_t id = 0;
  uint64_t state_bytes = 0;  // what its state may become
  uint64_t saved_bytes = 0;  // of its snapshot, freed when it begins
  int64_t since_us = 0;
};

struct ActiveView {
  uint64_t id = 0;
  bool is_parked = false;    // its client reads slowly
  uint64_t state_bytes = 0;  // what its state may become
  uint64_t saved_bytes = 0;  // what its snapshot would take now
  int64_t since_us = 0;      // when it began, or began again
};

struct AdmissionView {
  int64_t now_us = 0;
  std::vector<WaitingView> waiting;  // who has waited longest first
  std::vector<ActiveView> active;    // in the order in which they began
};

struct AdmissionPlan {
  std::vector<uint64_t> preempt;  // before
  std::vector<uint64_t> admit;    // these begin
};

/// Texts begin in the order in which they came, so that nobody who needs much waits for ever. Where
/// the first of them has no room for longer than patience_us, it takes that of parked texts and of
/// those that have run for as long. States that have outgrown the limit displace who began last. A
/// text alone always has room.
AdmissionPlan plan_admission(const StepLimits& limits, const AdmissionView& view);

// --- The next step ---

struct TextView {
  uint64_t id = 0;
  bool alone = false;         // has steps of its own
  int64_t prompt_tokens = 0;  // to be evaluated before the next is drawn; 0: one that was drawn
  int64_t piece_tokens = 0;   // of these, at most in one step
  /// Another text that evaluates the same beginning, which this one will then have for nothing.
  std::optional<uint64_t> behind = {};
  int64_t waits_since_us = 0;  // its prompt
  int64_t served_us = 0;       // of the engine; see StepBook
  uint64_t last_step = 0;      // the number of the last one that it took part in, 0: none
};

/// The request that has the engine where experts come from a drive.
struct SliceView {
  uint64_t id = 0;
  int64_t elapsed_us = 0;
};

struct StepView {
  int64_t now_us = 0;
  uint64_t steps = 0;  // so far
  bool is_drive_bound = false;
  int64_t prompt_tokens =
      64;                  // that a step may bring beside others' answers, 0: none; see StepBook
  int64_t token_us = 0;    // what a step of one token is expected to take
  bool was_alone = false;  // the last step was of a text that has steps of its own
  std::optional<SliceView> slice = {};
  std::vector<TextView> texts;  // that can go on, in the order in which they began
};

struct StepPart {
  uint64_t id = 0;
  int64_t tokens = 1;
  bool is_prompt = false;
  bool operator==(const StepPart&) const = default;
};

struct StepPlan {
  std::optional<uint64_t> owner = {};  // whose slice it is,
  bool begins_slice = false;           // and whether that begins here
  bool is_alone = false;
  std::vector<StepPart> parts;  // none: nobody can go on
};

/// Where experts are in memory, each step has a token of every answer, and beside them as much of
/// prompts as view.prompt_tokens allows. Where they come from a drive, one text after another has
/// the engine for a slice, so that its experts stay in the cache: the one that has waited longest,
/// unless it is ahead of another by a slice.
/// A piece of a prompt that reads most experts anyway brings a token of every answer along.
/// The shortest prompt is first; a wait of ten seconds halves its length.
StepPlan plan_step(const StepLimits& limits, const StepView& view);

}  // namespace moeflux
