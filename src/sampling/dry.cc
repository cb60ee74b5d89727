#include "sampling/dry.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace moeflux {
namespace {

/// For each n: how many tokens before place `size - n` are those of the text's end, at most
/// `limit`. The prefix function of matching ("Z"), read backwards.
std::vector<size_t> repeats_before(std::span<const TokenId> text, size_t limit) {
  const size_t size = text.size();
  const auto from_end = [&](size_t n) { return text[size - 1 - n]; };
  std::vector<size_t> lengths(size, 0);
  size_t begin = 0;  // of the match that reaches furthest
  size_t end = 0;
  for (size_t n = 1; n < size; ++n) {
    size_t length = n < end ? std::min(end - n, lengths[n - begin]) : 0;
    while (n + length < size && from_end(length) == from_end(n + length)) ++length;
    lengths[n] = length;
    if (n + length > end) {
      begin = n;
      end = n + length;
    }
  }
  for (size_t& length : lengths) length = std::min(length, limit);
  return lengths;
}

// Products in a fixed order: pow() differs between platforms.
double power_of(double base, size_t exponent) {
  double power = 1.0;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) power *= base;
    base *= base;
  }
  return power;
}

TokenLogit* find(Candidates& candidates, TokenId token) {
  std::vector<TokenLogit>& list = candidates.list;
  const auto at = static_cast<size_t>(token);
  if (at < list.size() && list[at].id == token) return &list[at];  // a whole row
  const auto found =
      std::find_if(list.begin(), list.end(), [&](const TokenLogit& c) { return c.id == token; });
  return found == list.end() ? nullptr : &*found;
}

}  // namespace

void DryBreakers::add(TokenId head, std::vector<TokenId> tail) {
  std::vector<std::vector<TokenId>>& tails = tails_[head];
  if (std::find(tails.begin(), tails.end(), tail) == tails.end()) tails.push_back(std::move(tail));
}

bool DryBreakers::is_alone(TokenId token) const {
  const auto found = tails_.find(token);
  return found != tails_.end() && std::any_of(found->second.begin(), found->second.end(),
                                              [](const auto& tail) { return tail.empty(); });
}

size_t DryBreakers::tokens_since(std::span<const TokenId> text) const {
  for (size_t after = 0; after < text.size(); ++after) {
    const auto found = tails_.find(text[text.size() - 1 - after]);
    if (found == tails_.end()) continue;
    const std::span<const TokenId> rest = text.last(after);
    bool breaks = false;
    size_t longest = 0;
    for (const std::vector<TokenId>& tail : found->second) {
      if (tail.size() > rest.size() || !std::equal(tail.begin(), tail.end(), rest.begin()))
        continue;
      breaks = true;
      longest = std::max(longest, tail.size());
    }
    if (breaks) return after - longest;
  }
  return text.size();
}

void penalize_repeats(Candidates& candidates, std::span<const TokenId> text,
                      const DryBreakers& breakers, const DryOptions& options) {
  const auto allowed = static_cast<size_t>(options.allowed_length);
  const size_t limit = breakers.tokens_since(text);
  if (text.size() <= allowed || limit < allowed) return;
  const std::vector<size_t> lengths = repeats_before(text, limit);
  std::vector<std::pair<TokenId, size_t>> longest;  // by token
  for (size_t n = 1; n < text.size(); ++n) {
    if (lengths[n] >= allowed) longest.emplace_back(text[text.size() - n], lengths[n]);
  }
  std::sort(longest.begin(), longest.end());
  for (size_t i = 0; i < longest.size(); ++i) {
    const auto [token, length] = longest[i];
    if (i + 1 < longest.size() && longest[i + 1].first == token) continue;
    TokenLogit* candidate = find(candidates, token);
    if (candidate == nullptr || breakers.is_alone(token)) continue;
    const double penalty = options.multiplier * power_of(options.base, length - allowed);
    constexpr double kLeast = -std::numeric_limits<float>::max();
    if (candidate->logit < kLeast) continue;  // minus infinity stays that
    candidate->logit = static_cast<float>(std::max(candidate->logit - penalty, kLeast));
  }
}

}  // namespace moeflux
