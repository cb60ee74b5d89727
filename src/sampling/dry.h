// DRY ("don't repeat yourself"): the longer the end of a text repeats something earlier, the less
// likely becomes the token that followed there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "sampling/candidates.h"

namespace moeflux {

/// Sequences of tokens that repetitions do not reach across.
class DryBreakers {
 public:
  /// A token that breaks if these tokens follow it; none: always.
  void add(TokenId head, std::vector<TokenId> tail);
  bool is_alone(TokenId token) const;
  /// How many tokens come after the last breaker of a text; all of them without one.
  size_t tokens_since(std::span<const TokenId> text) const;

 private:
  std::unordered_map<TokenId, std::vector<std::vector<TokenId>>> tails_;
};

struct DryOptions {
  double multiplier = 0.0;
  double base = 1.0;           // at least 1
  int32_t allowed_length = 0;  // repetitions of fewer tokens cost nothing
};

/// Takes multiplier * base^(length - allowed_length) from the logits of tokens that would continue
/// a repetition of `length` tokens of the text's end, the longest one for each, none across a
/// breaker; not from a breaker that is one token. Linear in the text. A logit stays finite.
void penalize_repeats(Candidates& candidates, std::span<const TokenId> text,
                      const DryBreakers& breakers, const DryOptions& options);

}  // namespace moeflux
