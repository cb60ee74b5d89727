#include "sampling/text_score.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace moeflux {
namespace {

// The number to subtract from a row's logits for log-probabilities.
double log_total(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0.0;
  for (const float logit : logits) total += std::exp(logit - largest);
  return std::log(total) + largest;
}

}  // namespace

double surprise(std::span<const float> logits, TokenId target) {
  MF_CHECK(target >= 0 && static_cast<size_t>(target) < logits.size());
  return log_total(logits) - logits[static_cast<size_t>(target)];
}

double divergence(std::span<const float> base, std::span<const float> other, double least) {
  MF_CHECK(!base.empty() && base.size() == other.size());
  const double base_total = log_total(base);
  const double other_total = log_total(other);
  double nats = 0.0;
  for (size_t i = 0; i < base.size(); ++i) {
    const double log_base = base[i] - base_total;
    const double share = std::exp(log_base);
    if (log_base <= least || share == 0.0) continue;  // 0 has no finite logarithm
    nats += share * (log_base - (other[i] - other_total));
  }
  if (std::isnan(nats)) return std::numeric_limits<double>::infinity();
  return std::max(0.0, nats);  // rounding may leave equal rows a little below
}

void TextScore::add(double surprise_nats) {
  nats_ += surprise_nats;
  squares_ += surprise_nats * surprise_nats;
  ++tokens_;
}

double TextScore::mean() const { return nats_ / static_cast<double>(tokens_); }

double TextScore::perplexity() const { return std::exp(mean()); }

double TextScore::perplexity_error() const {
  const auto n = static_cast<double>(tokens_);
  return perplexity() * std::sqrt(std::max(0.0, squares_ / n - mean() * mean()) / n);
}

void DivergenceScore::add(std::span<const float> base, std::span<const float> other, double least) {
  const double nats = divergence(base, other, least);
  divergences_.push_back(static_cast<float>(nats));
  nats_ += nats;
  const auto base_top = std::max_element(base.begin(), base.end()) - base.begin();
  const auto other_top = std::max_element(other.begin(), other.end()) - other.begin();
  same_top_ += base_top == other_top ? 1 : 0;
}

double DivergenceScore::mean() const { return nats_ / static_cast<double>(tokens()); }

double DivergenceScore::quantile(double share) const {
  MF_CHECK(share > 0.0 && share <= 1.0);
  if (divergences_.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<float> sorted = divergences_;
  const auto count = std::ceil(share * static_cast<double>(sorted.size()));
  const auto at = sorted.begin() + (static_cast<std::ptrdiff_t>(count) - 1);
  std::nth_element(sorted.begin(), at, sorted.end());
  return *at;
}

double DivergenceScore::same_top_share() const {
  return static_cast<double>(same_top_) / static_cast<double>(tokens());
}

}  // namespace moeflux
