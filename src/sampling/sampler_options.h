// Options of a sampler.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "sampling/sampler_order.h"

namespace moeflux {

class DryBreakers;

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
  int32_t vocab_limit = 0;    // ids from here on are never sampled; 0: no limit
  float typical_p = 1.0f;     // keeps the fewest, most typical first, with more than p; >= 1: all
  float top_n_sigma = -1.0f;  // keeps those of the highest less n deviations; <= 0: all
  float xtc_probability = 0.0f;    // how often top choices are left out; 0: never
  float xtc_threshold = 0.1f;      // least probability of a top choice; above 0.5: off
  float dynatemp_range = 0.0f;     // how far entropy moves the temperature; 0: not
  float dynatemp_exponent = 1.0f;  // of the entropy's share of the largest
  int32_t mirostat = 0;            // 1 or 2: that version in place of all steps but the temperature
  float mirostat_tau = 5.0f;       // the surprise wanted, in bits
  float mirostat_eta = 0.1f;       // how fast it is learned
  float dry_multiplier = 0.0f;     // subtracted from what would repeat, times
  float dry_base = 1.75f;  // this to the power of the length beyond the allowed; < 1: nothing
  int32_t dry_allowed_length = 2;   // in tokens
  int32_t dry_penalty_last_n = 64;  // how many tokens are searched; 0: none, -1: all
  /// Repetitions do not reach across these. The owner of a tokenizer makes `dry_breakers` of it.
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  std::shared_ptr<const DryBreakers> dry_breakers = {};  // none: nothing breaks
  std::vector<SamplerStep> samplers = default_sampler_order();
};

/// Names the field that cannot be right, with kInvalidArgument.
Status validate(const SamplerOptions& options);

/// Whether repetitions are looked for.
bool uses_dry(const SamplerOptions& options);

/// The steps that do something, in order.
std::vector<SamplerStep> active_steps(const SamplerOptions& options);

/// Ids from here on are not looked at: 2^24, more than any vocabulary has.
constexpr TokenId kTokenEnd = TokenId{1} << 24;

}  // namespace moeflux
