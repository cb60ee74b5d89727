#include "sampling/token_logprobs.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/portable_math.h"

namespace moeflux {

TokenLogprobs token_logprobs(std::span<const float> logits, TokenId token, int32_t top) {
  MF_CHECK(token >= 0 && static_cast<size_t>(token) < logits.size());
  const double highest = *std::ranges::max_element(logits);
  double total = 0.0;
  for (const float logit : logits) total += portable_exp(logit - highest);
  const double log_total = portable_log(total);
  // In this order: beside a large logit the logarithm would be lost.
  const auto logprob = [&](float logit) {
    return static_cast<float>((logit - highest) - log_total);
  };

  TokenLogprobs result{.logprob = logprob(logits[static_cast<size_t>(token)])};
  const size_t count = std::min(static_cast<size_t>(std::max(top, 0)), logits.size());
  if (count == 0) return result;
  result.top.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) result.top[i] = {logits[i], static_cast<TokenId>(i)};
  const auto end = result.top.begin() + static_cast<ptrdiff_t>(count);
  std::partial_sort(result.top.begin(), end, result.top.end(), is_better);
  result.top.resize(count);
  result.top.shrink_to_fit();
  for (TokenLogit& one : result.top) one.logit = logprob(one.logit);
  return result;
}

TokenLogprobs sampled_logprobs(Candidates drawn_from, TokenId token, TokenLogprobs own) {
  const size_t count = own.top.size();
  TokenLogprobs found{.logprob = -std::numeric_limits<float>::infinity()};
  if (!drawn_from.list.empty()) {
    const CandidateSums sums = sums_of(drawn_from);
    for (TokenLogit& one : drawn_from.list) {
      one.logit =
          static_cast<float>(drawn_from.distance(one, sums.highest) - portable_log(sums.total));
      if (one.id == token) found.logprob = one.logit;
    }
    std::sort(drawn_from.list.begin(), drawn_from.list.end(), is_better);
  }
  for (const TokenLogit& one : drawn_from.list) {
    if (found.top.size() < count) found.top.push_back(one);
  }
  for (const TokenLogit& one : own.top) {
    const auto is_same = [&](const TokenLogit& other) { return other.id == one.id; };
    if (found.top.size() == count) break;
    if (std::any_of(found.top.begin(), found.top.end(), is_same)) continue;
    found.top.push_back({-std::numeric_limits<float>::infinity(), one.id});
  }
  return found;
}

}  // namespace moeflux
