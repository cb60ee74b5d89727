// What functions of sequences share: keeping logits and sampler in step with the engine's past.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>

#include "library/handles.h"

namespace moeflux {

/// Told how many tokens of how many; false stops.
using TokenProgress = std::function<bool(int64_t done, int64_t total)>;

/// Runs an evaluation of `sequence` and counts its time and tokens, callbacks left out. What has
/// been counted, and the sequence's position, are made known before each callback and at the end.
class EvalTimer {
 public:
  explicit EvalTimer(mf_sequence& sequence);
  ~EvalTimer();
  EvalTimer(const EvalTimer&) = delete;
  EvalTimer& operator=(const EvalTimer&) = delete;

  /// Calls a callback while the clock stands still.
  template <typename Callback>
  auto outside(Callback&& callback) {
    publish();
    const auto begin = now_us();
    auto result = callback();
    paused_us_ += now_us() - begin;
    return result;
  }
  uint64_t elapsed_us() const { return now_us() - begin_us_ - paused_us_; }

 private:
  static uint64_t now_us();
  void publish();

  mf_sequence& sequence_;
  int64_t published_length_;
  uint64_t published_us_ = 0;
  uint64_t begin_us_;
  uint64_t paused_us_ = 0;
};

/// Appends tokens as Engine::eval() does; the logits of the last one become the sequence's.
Status evaluate(mf_sequence& sequence, std::span<const TokenId> tokens, const EvalOptions& options,
                const TokenProgress& progress, const LogitsSink& sink, EvalTimer& timer);

/// Makes sure that sequence.logits are those of the last token: after a truncation they are not
/// known, and the token is evaluated again. Fails with kFailedPrecondition on an empty sequence,
/// and with kCancelled when stopped, which leaves the sequence as it was.
Status ensure_logits(mf_sequence& sequence, std::stop_token stop);

/// The sequence's sampler, which has seen its tokens.
Result<Sampler> make_sampler(const mf_sequence& sequence, const SamplerOptions& options);

/// Options for sampling here: the model's logits can be wider than its tokenizer's vocabulary.
SamplerOptions with_vocab_limit(const OpenModel& open, SamplerOptions options);

}  // namespace moeflux
