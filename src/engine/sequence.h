// Sequence: one text being evaluated, and what it may return to. Moved by the engine that made it;
// knows nothing of models.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "state/sequence_state.h"

namespace moeflux {

/// Tokens and what evaluating them has left behind.
struct Past {
  std::unique_ptr<SequenceState> state;
  std::vector<TokenId> tokens;

  /// The same past again; what it holds is shared until one of the two writes.
  Past share() const { return {state->share(), tokens}; }
  /// As SequenceState::truncate().
  void truncate(int64_t length) {
    state->truncate(length);
    tokens.resize(static_cast<size_t>(length));
  }
};

/// Belongs to the engine that made it and must not outlive it. Thread-compatible, together with the
/// other sequences of that engine.
class Sequence {
 public:
  /// Tokens evaluated so far.
  int64_t length() const { return static_cast<int64_t>(past_.tokens.size()); }
  /// The same tokens; valid until the sequence changes.
  std::span<const TokenId> tokens() const { return past_.tokens; }

  /// True when Engine::truncate() to `position`, at most length(), evaluates nothing again.
  bool can_truncate(int64_t position) const { return past_.state->can_truncate(position); }

 private:
  friend class Engine;
  friend class Prefixes;
  explicit Sequence(Past past) : past_(std::move(past)) {}
  Status check_whole() const;
  void become(Past past) {
    past_ = std::move(past);
    broken_ = false;
  }

  Past past_;
  bool broken_ = false;  // a step failed half-way: layers disagree about the past
  std::map<CheckpointId, Past> checkpoints_;
};

}  // namespace moeflux
