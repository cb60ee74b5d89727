// How well logits predict a text, and how far two models' logits for it lie apart. Knows numbers
// only: no model, no text.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/ids.h"

namespace moeflux {

/// Negative log-likelihood of `target` in nats, with the softmax in f64. `target` is an index into
/// `logits`.
double surprise(std::span<const float> logits, TokenId target);

/// KL(base || other) of the distributions that two rows of logits of one length stand for, in nats,
/// with f64 sums: what is lost by taking `other` where `base` is right. Infinite where `other`
/// rules out what `base` allows, or where a row has a NaN. Ids whose logarithm in `base` is `least`
/// nats or less are left out of the sum.
double divergence(std::span<const float> base, std::span<const float> other,
                  double least = -std::numeric_limits<double>::infinity());

/// A model's surprise over the tokens of a text.
class TextScore {
 public:
  void add(double surprise_nats);
  int64_t tokens() const { return tokens_; }
  /// Nats a token. Without any tokens, this and the following are NaN.
  double mean() const;
  double perplexity() const;
  double perplexity_error() const;

 private:
  double nats_ = 0.0;
  double squares_ = 0.0;
  int64_t tokens_ = 0;
};

/// The divergence of two models over the tokens of a text. Keeps four bytes a token.
class DivergenceScore {
 public:
  /// `least` as in divergence().
  void add(std::span<const float> base, std::span<const float> other,
           double least = -std::numeric_limits<double>::infinity());
  int64_t tokens() const { return static_cast<int64_t>(divergences_.size()); }
  /// Nats a token. Without any tokens, this and the following are NaN.
  double mean() const;
  /// The least number of nats that so large a share of tokens does not exceed; share in (0, 1].
  double quantile(double share) const;
  /// The share of tokens for which the highest logit is at the same place.
  double same_top_share() const;

 private:
  std::vector<float> divergences_;
  double nats_ = 0.0;
  int64_t same_top_ = 0;
};

}  // namespace moeflux
