// The worth of drafts: how many of them a step should have, by what steps took and how many
// drafts were accepted so far. Numbers only; it changes when drafts are made, never a text.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace moeflux {

/// Drafts of a text, from its beginning on.
struct DraftCounts {
  int64_t drafts = 0;          // steps that had any
  int64_t drafted = 0;         // tokens of these
  int64_t accepted = 0;        // of these
  double seconds = 0.0;        // of steps of several rows, and
  double plain_seconds = 0.0;  // what their tokens take one by one

  /// How many times as fast these steps were; 1 while it is not known.
  double gain() const { return seconds > 0.0 ? plain_seconds / seconds : 1.0; }
  DraftCounts& operator+=(const DraftCounts& more);
  friend DraftCounts operator-(const DraftCounts& all, const DraftCounts& before);
};

class DraftPrice {
 public:
  /// A step that was evaluated.
  struct Step {
    int64_t rows = 0;  // with drafts
    int64_t drafted = 0;
    int64_t accepted = 0;  // of these
    double seconds = 0.0;
  };
  void note(const Step& step);
  /// A step of one row; 0 while it is not known.
  double plain_seconds() const { return seconds_[0]; }
  /// How many of `drafted` tokens give the most tokens a second: 0 where none pays. Drafts that are
  /// off are tried again, after waits that double while it does not pay, and as long as all that
  /// was lost by drafts is a hundredth of the text's time.
  int64_t worth(int64_t drafted);
  /// Tokens a second of a step with so many drafts beside those without; 1 while it is not known.
  double gain(int64_t drafts) const;

 private:
  static constexpr size_t kSizes = 8;  // of steps: 1, 2, 3 to 4, 5 to 8, ... rows
  static size_t size_of(int64_t rows) {
    const auto size = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(rows - 1)));
    return size < kSizes ? size : kSizes - 1;
  }
  double cost(int64_t rows) const;
  int64_t known_rows() const;
  bool may_lose() const;

  std::array<double, kSizes> seconds_ = {};  // of a step; 0: not known
  double acceptance_ = 0.9;                  // of a draft behind accepted ones
  double spent_ = 0.0;                       // lately, by steps of several rows, and
  double earned_ = 0.0;                      // what their tokens take one by one
  double all_seconds_ = 0.0;                 // of all steps
  double lost_seconds_ = 0.0;                // by all steps of several rows; below 0: earned
  int64_t skipped_ = 0;                      // drafts since the last that was tried
  int64_t wait_ = 16;                        // and how many are skipped before the next
};

}  // namespace moeflux
