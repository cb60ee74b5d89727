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
  double plain_seconds() const { return sizes_[0].seconds; }
  /// A repetition of the text.
  struct Repeat {
    /// One for each token that may follow: how likely it is, behind those before it.
    std::span<const float> confidences = {};
    int64_t lost_rows = 0;  // that the step evaluates again, whatever is drafted
    /// Tokens of a step whose draft is wrong are evaluated again by the next: states have a fixed
    /// size.
    bool is_redone = false;
  };
  /// How many of the tokens give the most tokens a second: 0 where none pays. Losses of repetitions
  /// stay within a fiftieth of the text's time and what they earned lately. Beyond that they
  /// are tried again, after waits that double while it does not pay.
  int64_t worth_repeat(const Repeat& repeat);
  /// How many tokens to ask a source for, with what it takes to propose them, as worth_repeat().
  int64_t worth_asking(int64_t tokens_max);
  /// How many of a source's tokens are worth their rows, now that they have been proposed. All of
  /// those that worth() wanted tried.
  int64_t worth_rows(std::span<const float> confidences) const;

 private:
  static constexpr size_t kLevels = 8;  // of confidence
  /// When drafts of one origin that do not pay are tried again.
  struct Trials {
    int64_t skipped = 0;    // drafts since the last that was tried
    int64_t wait = 16;      // and how many are skipped before the next
    bool is_trial = false;  // the last that was found worth it
  };
  /// Measurements of a source.
  struct Source {
    Trials trials;
    double acceptance = 0.7;         // of a draft behind accepted ones
    double proposing_seconds = 0.0;  // of a token
    double spent = 0.0;              // lately, by steps and drafting, and
    double earned = 0.0;             // what their tokens take one by one
  };
  static size_t level_of(float confidence);
  void lose(double seconds, DraftOrigin origin);
  void note_source(const Step& step);
  void note_acceptance(const Step& step);
  /// The number of drafts, up to `most`, that gives the most tokens a second: 0 where none gives
  /// more than `best_rate`. `again`: rows that are evaluated again.
  template <typename Acceptance>
  int64_t best_length(int64_t most, const Acceptance& acceptance_of, double best_rate,
                      const Repeat& again) const;
  double gain_of_source(int64_t drafts) const;
  int64_t rows_to_try() const;
  /// Whether drafts go on; otherwise `drafts` becomes what is tried, 0 in most steps.
  void try_again(Trials& trials, bool goes_on, int64_t drafted, int64_t& drafts) const;
  static constexpr size_t kSizes = 8;  // of steps: 1, 2, 3 to 4, 5 to 8, ... rows
  static size_t size_of(int64_t rows) {
    const auto size = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(rows - 1)));
    return size < kSizes ? size : kSizes - 1;
  }
  /// Steps of one size.
  struct Size {
    double seconds = 0.0;  // 0: not known
    double rows = 0.0;     // on average
  };
  double cost(int64_t rows) const;
  int64_t known_rows() const;
  bool may_lose() const { return is_little(lost_seconds_); }
  bool is_little(double lost_seconds) const;

  std::array<Size, kSizes> sizes_ = {};
  Trials repeats_;
  Source source_;
  std::array<double, kLevels> levels_;  // acceptance of a source's drafts, by confidence
  double all_seconds_ = 0.0;            // of all steps
  double lost_seconds_ = 0.0;           // by all drafts; below 0: earned
  double repeats_lost_ = 0.0;           // of these by kText
};

}  // namespace moeflux
