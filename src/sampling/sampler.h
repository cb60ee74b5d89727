// Logits to a token, by a chain of steps in llama.cpp's order or another.
//
// The default order: penalties, logit bias, DRY, top-n-sigma, top-k, typical-p, top-p, min-p, XTC,
// temperature, draw. (llama.cpp adds the bias before the penalties; here it comes after penalties
// that stand first, and so is not scaled by repeat_penalty; else first of all.) Steps that look at
// probabilities see those of the candidates and the temperature that earlier steps left. Mirostat
// stands in place of the chain, after bias and temperature. Penalties, bias and DRY change what
// greedy decoding picks too; nothing else does, XTC and typical-p neither.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/token_mask.h"
#include "sampling/candidates.h"
#include "sampling/sampler_options.h"

namespace moeflux {

/// With options and history, all there is of a sampler.
struct SamplerProgress {
  uint64_t draws_count = 0;                // how many numbers of the generator have been used
  std::optional<double> mirostat_mu = {};  // none: at its start, which is twice tau
};

/// One sequence's sampler. Equal options, history and logits give equal tokens on every platform:
/// ties go to the lower id, and the generator, the exponential and the logarithm are our own. Not
/// thread-safe. Allocates until it has seen the vocabulary's size and filled its windows, then no
/// more, but for DRY.
class Sampler {
 public:
  /// Fails as validate() does.
  static Result<Sampler> create(SamplerOptions options);

  /// Picks a token; does not record it. Advances the generator by one, with XTC by two, and
  /// mirostat's mu, unless greedy. Fails with kInvalidArgument when a logit is NaN or plus
  /// infinity, when none is above minus infinity, or when there is none. Tokens outside `mask`
  /// leave behind penalties that stand first and bias, before all other steps.
  Result<TokenId> sample(std::span<const float> logits, const TokenMask* mask = nullptr);

  /// How many of the highest of `count` logits sample_best() needs to pick what sample() would; 0
  /// where sample() would look at others too. The one place that knows which chains need whole
  /// rows.
  int32_t best_needed(int32_t count) const;
  /// sample() given the best_needed() highest of `count` logits alone, best first, equal ones in
  /// the order of ids, what is no number before all others. Same token, same draws, same errors.
  Result<TokenId> sample_best(std::span<const TokenLogit> best, int32_t count);

  /// The logits of the `count` first that sample_some() needs to pick what sample() would with any
  /// mask: the `best` highest that are allowed and not `apart`, and all of `apart` that are
  /// allowed. 0: sample() would look at others too.
  struct SomeNeeded {
    int32_t best = 0;
    std::vector<TokenId> apart = {};  // whose logits it changes, in the order of ids
  };
  SomeNeeded some_needed(int32_t count) const;
  /// sample() given these alone, in any order, and what is no number or plus infinity, whether
  /// allowed or not. Same token, same draws, same errors.
  Result<TokenId> sample_some(std::span<const TokenLogit> some, int32_t count,
                              const TokenMask* mask = nullptr);

  /// The candidates of the last pick. A greedy pick is the best of them.
  const Candidates& candidates() const { return candidates_; }

  /// Records a token of the sequence, prompt or generated, for penalties and DRY. Negative ids, and
  /// ids of 2^24 and more, are left out.
  void accept(TokenId token);

  /// Forgets the history and starts generator and mirostat anew.
  void reset();

  const SamplerProgress& progress() const { return progress_; }
  void set_progress(const SamplerProgress& progress) { progress_ = progress; }

  const SamplerOptions& options() const { return options_; }

 private:
  explicit Sampler(SamplerOptions options)
      : options_(std::move(options)), steps_(active_steps(options_)) {}

  bool is_greedy() const { return options_.temperature <= 0; }
  bool has(SamplerStep step) const;
  Status gather(std::span<const float> logits);
  int64_t kept_by(std::span<const SamplerStep> steps) const;
  std::span<const SamplerStep> change_first();
  Status check_candidates(size_t count) const;
  Result<TokenId> pick(std::span<const SamplerStep> steps);
  Status change_logits(SamplerStep step);
  void narrow(SamplerStep step);
  void penalize();
  void apply_temperature();
  void maybe_drop_top_choices();
  double next_uniform();
  TokenId draw();
  void learn(double weight, double total);

  SamplerOptions options_;
  std::vector<SamplerStep> steps_;  // steps that do something
  Candidates candidates_;
  std::vector<double> weights_;
  std::vector<TokenId> window_;  // the last repeat_last_n tokens, a ring
  size_t window_next_ = 0;
  std::vector<int32_t> counts_;    // of the window, by token
  std::vector<TokenId> dry_text_;  // ends with the last dry_penalty_last_n tokens
  SamplerProgress progress_;
};

}  // namespace moeflux
