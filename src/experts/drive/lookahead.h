// Lookahead: which experts to read for a layer whose router has not spoken yet, given what that
// router says of an earlier state of the token. Learns online how often such guesses come true
// where it matters, among experts that are absent, for each layer and rank, and what the drive's
// idle time is worth; guesses only while that pays. Knows routing and counts: no cache, no reads,
// no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "experts/drive/drive_load.h"

namespace moeflux {

/// kOn guesses whatever it costs: to measure with.
enum class LookaheadMode : uint8_t { kAuto, kOn, kOff };

/// "auto", "on" or "off".
std::optional<LookaheadMode> parse_lookahead_mode(std::string_view name);

/// An expert the early router chose, and at which place.
struct ExpertGuess {
  ExpertId expert{};
  int32_t rank = 0;
};

/// Precision from which a guess saves more waiting than it causes. A right one saves the part of a
/// read that fits the idle time. A wrong one delays a demand read with the probability that there
/// is one.
double break_even_precision(const DriveLoad& load);

/// Thread-compatible. Allocates only when it is made.
class Lookahead {
 public:
  struct Options {
    LookaheadMode mode = LookaheadMode::kAuto;
    int32_t num_layers = 0;
    int32_t top_k = 0;  // the most of any layer
  };
  explicit Lookahead(const Options& options);

  /// A token of decode comes to the layer before: is its router to be applied early? Always while
  /// guesses pay, at every sixteenth token while they do not, to notice when they do again.
  bool wants(LayerId layer);
  /// `absent`: the early router's choice without what is cached, best first, at most top_k. Returns
  /// those to read, and remembers all to learn from; the span lives until the next call.
  std::span<const ExpertGuess> choose(LayerId layer, std::span<const ExpertGuess> absent,
                                      const DriveLoad& load);
  /// The router has spoken: `chosen` of the layer that choose() was called for, if it was.
  void settle(LayerId layer, std::span<const int32_t> chosen);
  /// The time that applying a router early took.
  void note_cost(double seconds);

  int32_t top_k() const { return options_.top_k; }
  /// The share of absent experts guessed at this rank that the router then asked for.
  double precision(LayerId layer, int32_t rank) const;
  /// Guesses pay at present, as far as known; of kOn and kOff, what they say.
  bool is_on() const;

 private:
  struct Counter {
    double tried = 0.0;
    double came_true = 0.0;
    void add(bool right);
  };
  Counter& counter(LayerId layer, int32_t rank) {
    return counters_[static_cast<size_t>(index(layer) * options_.top_k + rank)];
  }
  const Counter& counter(LayerId layer, int32_t rank) const {
    return counters_[static_cast<size_t>(index(layer) * options_.top_k + rank)];
  }

  Options options_;
  std::vector<Counter> counters_;        // [layer][rank]
  std::vector<Counter> ranks_;           // of all layers
  std::vector<uint32_t> visits_;         // of each layer
  std::vector<ExpertGuess> remembered_;  // of layer remembered_of_
  std::vector<ExpertGuess> chosen_;
  std::optional<LayerId> remembered_of_;
  double gain_seconds_ = 0.0;  // of a visit, on average, net of what wrong guesses cost
  double cost_seconds_ = 0.0;  // of an early router, on average
};

}  // namespace moeflux
