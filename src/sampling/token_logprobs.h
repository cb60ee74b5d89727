// How probable a model holds tokens, before any sampler has changed its logits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "sampling/candidates.h"

namespace moeflux {

/// A token's log-probability under softmax of a row of logits as the model gave them: no
/// temperature, bias or penalty.
struct TokenLogprobs {
  float logprob = 0.0f;              // nats, at most 0
  std::vector<TokenLogit> top = {};  // log-probabilities, best first, equal ones in order of ids
};

/// Log-probabilities of `token`, an index into `logits`, and of the `top` best beside
/// it, or as many as there are. Sums are f64, so that large vocabularies lose
/// nothing.
TokenLogprobs token_logprobs(std::span<const float> logits, TokenId token, int32_t top);

/// The same of what a sampler drew `token` from, and of nothing else.
TokenLogprobs sampled_logprobs(Candidates drawn_from, TokenId token, size_t top);

}  // namespace moeflux
