// The worth of drafts: how many of them a step should have, by what steps took and how many
// drafts were accepted so far. Numbers only; it changes when drafts are made, never a text.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace moeflux {

/// Drafts of a text, from its beginning on.
struct DraftCounts {
  int64_t drafts = 0;             // steps that had any
  int64_t drafted = 0;            // tokens of these
  int64_t accepted = 0;           // of these
  double seconds = 0.0;           // of steps that had several rows, or for which a source was asked
  double drafting_seconds = 0.0;  // of these, that the source took
  double plain_seconds = 0.0;     // what the tokens of these steps take one by one

  /// How many times as fast these steps were; 1 while it is not known.
  double gain() const { return seconds > 0.0 ? plain_seconds / seconds : 1.0; }
  DraftCounts& operator+=(const DraftCounts& more);
  friend DraftCounts operator-(const DraftCounts& all, const DraftCounts& before);
};

/// kText: the text's own repetitions, which cost nothing to find; kOther: a DraftSource.
enum class DraftOrigin : uint8_t { kText, kOther };

class DraftPrice {
 public:
  DraftPrice();
  /// A step that was evaluated.
  struct Step {
    int64_t rows = 0;  // with drafts
    int64_t drafted = 0;
    int64_t accepted = 0;  // of these
    double seconds = 0.0;  // of the evaluation
    /// The step's drafts or, where it has none, the last.
    DraftOrigin origin = DraftOrigin::kText;
    std::span<const float> confidences = {};  // of the drafts, where they have any
    double drafting_seconds = 0.0;            // that the source took to propose
    int64_t proposed = 0;                     // tokens in that time, of which the step has some
    double follow_seconds = 0.0;              // that it took beside to learn the text
  };
  void note(const Step& step);
  /// A step of one row; 0 while it is not known.
  double plain_seconds() const { return seconds_[0]; }
  /// How many of `drafted` tokens give the most tokens a second, with what it takes to propose
  /// them: 0 where none pays. Drafts that are off are tried again, after waits that double while it
  /// does not pay, and as long as all that was lost by drafts is a hundredth of the text's time.
  int64_t worth(int64_t drafted, DraftOrigin origin = DraftOrigin::kText);
  /// How many of a source's tokens are worth their rows, now that they have been proposed. All of
  /// those that worth() wanted tried.
  int64_t worth_rows(std::span<const float> confidences) const;
  /// Tokens a second of a step with so many drafts beside those without; 1 while it is not known.
  double gain(int64_t drafts, DraftOrigin origin = DraftOrigin::kText) const;

 private:
  static constexpr size_t kLevels = 8;  // of confidence
  /// Measurements of drafts of one origin.
  struct Known {
    double acceptance = 0.0;         // of a draft behind accepted ones
    double proposing_seconds = 0.0;  // of a token
    double spent = 0.0;              // lately, by steps and drafting, and
    double earned = 0.0;             // what their tokens take one by one
    int64_t skipped = 0;             // drafts since the last that was tried
    int64_t wait = 16;               // and how many are skipped before the next
    bool is_trial = false;           // the last that was found worth it
  };
  static size_t level_of(float confidence);
  Known& known(DraftOrigin origin) { return known_[static_cast<size_t>(origin)]; }
  const Known& known(DraftOrigin origin) const { return known_[static_cast<size_t>(origin)]; }
  void note_acceptance(const Step& step);
  static constexpr size_t kSizes = 8;  // of steps: 1, 2, 3 to 4, 5 to 8, ... rows
  static size_t size_of(int64_t rows) {
    const auto size = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(rows - 1)));
    return size < kSizes ? size : kSizes - 1;
  }
  double cost(int64_t rows) const;
  int64_t known_rows() const;
  bool may_lose() const;

  std::array<double, kSizes> seconds_ = {};  // of a step; 0: not known
  std::array<Known, 2> known_ = {Known{.acceptance = 0.9}, Known{.acceptance = 0.7}};
  std::array<double, kLevels> levels_;  // acceptance of a source's drafts, by confidence
  double all_seconds_ = 0.0;            // of all steps
  double lost_seconds_ = 0.0;           // by all drafts; below 0: earned
};

}  // namespace moeflux
