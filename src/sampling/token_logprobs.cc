#include "sampling/token_logprobs.h"

#include <algorithm>
#include <limits>
#include <utility>

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

TokenLogprobs sampled_logprobs(Candidates drawn_from, TokenId token, size_t top) {
  TokenLogprobs found{.logprob = -std::numeric_limits<float>::infinity()};
  if (drawn_from.list.empty()) return found;
  const CandidateSums sums = sums_of(drawn_from);
  const double log_total = portable_log(sums.total);
  for (TokenLogit& one : drawn_from.list) {
    one.logit = static_cast<float>(drawn_from.distance(one, sums.highest) - log_total);
    if (one.id == token) found.logprob = one.logit;
  }
  std::sort(drawn_from.list.begin(), drawn_from.list.end(), is_better);
  if (drawn_from.list.size() > top) drawn_from.list.resize(top);
  found.top = std::move(drawn_from.list);
  return found;
}

}  // namespace moeflux
