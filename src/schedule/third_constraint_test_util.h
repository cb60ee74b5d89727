// A constraint whose allowed tokens depend on all tokens so far, for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "constraint/constraint.h"

namespace moeflux {

/// Allows a third of the vocabulary, by the tokens so far. Fails for good where `poison` comes.
class ThirdMatcher final : public Matcher {
 public:
  ThirdMatcher(TokenId poison, TokenId vocab_size) : poison_(poison), vocab_size_(vocab_size) {}

  Result<Next> next() override {
    has_failed_ = has_failed_ || std::ranges::count(tokens_, poison_) > 0;
    if (has_failed_) return make_error(ErrorCode::kUnsupported, "poison");
    TokenId sum = 0;
    for (const TokenId token : tokens_) sum += token;
    words_.assign(static_cast<size_t>(vocab_size_ + 31) / 32, 0);
    for (TokenId token = 0; token < vocab_size_; ++token) {
      const bool is_allowed = (token + sum) % 3 == 0 || token == poison_;
      if (is_allowed) words_[static_cast<size_t>(token / 32)] |= 1u << (token % 32);
    }
    return Next{.mask = {words_}};
  }
  Status consume(TokenId token) override {
    if (has_failed_) return make_error(ErrorCode::kUnsupported, "poison");
    tokens_.push_back(token);
    return {};
  }
  Status rollback(int64_t count) override {
    tokens_.resize(tokens_.size() - static_cast<size_t>(count));
    return {};
  }
  void stop() override {}

 private:
  const TokenId poison_;
  const TokenId vocab_size_;
  bool has_failed_ = false;
  std::vector<TokenId> tokens_;
  std::vector<uint32_t> words_;
};

class ThirdConstraint final : public Constraint {
 public:
  explicit ThirdConstraint(TokenId poison = -1, TokenId vocab_size = 64)
      : poison_(poison), vocab_size_(vocab_size) {}
  Result<std::unique_ptr<Matcher>> start() const override {
    return std::unique_ptr<Matcher>(std::make_unique<ThirdMatcher>(poison_, vocab_size_));
  }

 private:
  const TokenId poison_;
  const TokenId vocab_size_;
};

}  // namespace moeflux
