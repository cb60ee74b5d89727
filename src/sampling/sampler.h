// Logits to a token, as llama.cpp's default chain does it.
//
// Order of the steps: penalties, logit bias, top-k, top-p, min-p, temperature, draw. (llama.cpp
// adds the bias before the penalties; here a bias is not scaled by repeat_penalty.) Top-p and min-p
// look at probabilities before temperature, over the candidates that the steps before left.
// Penalties and bias also change what greedy decoding picks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace moeflux {

struct LogitBias {
  TokenId token = 0;
  float bias = 0.0f;  // added to the logit; minus infinity bans the token
};

/// Names, meanings and defaults are llama.cpp's, but for the seed, which is never random by itself.
struct SamplerOptions {
  float temperature = 0.8f;        // divides the logits; <= 0: greedy, the highest logit
  int32_t top_k = 40;              // keeps the k highest; <= 0: all
  float top_p = 0.95f;             // keeps the fewest whose probabilities reach p; >= 1: all
  float min_p = 0.05f;             // keeps those of at least min_p times the highest; 0: all
  float repeat_penalty = 1.0f;     // divides positive and multiplies other logits of seen tokens
  int32_t repeat_last_n = 64;      // how many tokens count as seen; 0: none, -1: all
  float presence_penalty = 0.0f;   // subtracted from seen tokens once
  float frequency_penalty = 0.0f;  // subtracted from seen tokens for each time
  std::vector<LogitBias> logit_bias = {};
  uint64_t seed = 0;
  int32_t vocab_limit = 0;  // ids from here on are never sampled; 0: no limit
};

/// Names the field that cannot be right, with kInvalidArgument.
Status validate(const SamplerOptions& options);

/// A token and its logit.
struct TokenLogit {
  float logit = 0.0f;
  TokenId id = 0;
};

/// One sequence's sampler. Equal options, history and logits give equal tokens on every platform:
/// ties go to the lower id, and the generator and the exponential are our own. Not thread-safe.
/// Allocates until it has seen the vocabulary's size and filled its window, then no more.
class Sampler {
 public:
  /// Fails as validate() does.
  static Result<Sampler> create(SamplerOptions options);

  /// Picks a token; does not record it. Advances the generator by one unless greedy. Fails with
  /// kInvalidArgument when a logit is NaN or plus infinity, when none is above minus infinity, or
  /// when there is none.
  Result<TokenId> sample(std::span<const float> logits);

  /// How many of the highest of `count` logits sample_best() needs to pick what sample() would; 0
  /// where sample() would look at others too.
  int32_t best_needed(int32_t count) const;
  /// sample() given the best_needed() highest of `count` logits alone, best first, equal ones in
  /// the order of ids, what is no number before all others. Same token, same draws, same errors.
  Result<TokenId> sample_best(std::span<const TokenLogit> best, int32_t count);

  /// Records a token of the sequence, prompt or generated, for the penalties. Negative ids, and ids
  /// of 2^24 and more, are left out.
  void accept(TokenId token);

  /// Forgets the history and starts the generator anew.
  void reset();

  /// How many numbers of the generator have been used: with options and history, all there is.
  uint64_t draws_count() const { return draws_count_; }
  void set_draws_count(uint64_t draws_count) { draws_count_ = draws_count; }

  const SamplerOptions& options() const { return options_; }

 private:
  using Candidate = TokenLogit;
  explicit Sampler(SamplerOptions options) : options_(std::move(options)) {}

  static bool is_better(const Candidate& a, const Candidate& b);
  bool has_penalties() const;
  Status gather(std::span<const float> logits);
  void penalize();
  Status check_candidates(size_t count) const;
  TokenId pick();
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  TokenId draw();

  SamplerOptions options_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;
  std::vector<TokenId> window_;  // the last repeat_last_n tokens, a ring
  size_t window_next_ = 0;
  std::vector<int32_t> counts_;  // of the window, by token
  uint64_t draws_count_ = 0;
};

}  // namespace moeflux
