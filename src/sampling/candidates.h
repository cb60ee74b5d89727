// The rest of a row of logits while samplers narrow it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace moeflux {

struct TokenLogit {
  float logit = 0.0f;
  TokenId id = 0;
};

/// The order of candidates: by logit, equal ones by id.
inline bool is_better(const TokenLogit& a, const TokenLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

/// Tokens that can still be drawn: each has the probability of exp(logit / temperature), normalised
/// over the list. At least one logit is finite.
struct Candidates {
  std::vector<TokenLogit> list = {};
  double temperature = 1.0;  // above 0

  const TokenLogit& best() const;
  /// How far below `highest` a logit lies, after temperature: the logarithm of its probability but
  /// for a constant.
  double distance(const TokenLogit& candidate, double highest) const {
    const double below = candidate.logit - highest;
    return below == 0 ? 0.0 : below / temperature;  // a temperature may be next to nothing
  }
};

/// Sums over the candidates. Weight is exp(distance), which is probability times `total`.
struct CandidateSums {
  double highest = 0.0;        // logit
  double total = 0.0;          // of weights
  double mean_distance = 0.0;  // weighted; entropy is log(total) less this
};
CandidateSums sums_of(const Candidates& candidates);

/// So many of the best tell a token's probability: the others have little of it, and take time.
constexpr int32_t kConfidenceTokens = 10;
/// How likely the first of `best` is among them, best first; 0 where a logit is not a number.
float confidence_of(std::span<const TokenLogit> best);

}  // namespace moeflux
