// A text that is held to a constraint, in step with its tokens: which may be drawn next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/token_mask.h"
#include "constraint/constraint.h"

namespace moeflux {

/// Not thread-safe.
class ConstrainedText {
 public:
  /// Without a token. Fails as Constraint::start() does.
  static Result<std::shared_ptr<ConstrainedText>> start(
      std::shared_ptr<const Constraint> constraint);

  const std::shared_ptr<const Constraint>& constraint() const { return constraint_; }

  /// The text is these tokens, whatever it was before. Fails with kInvalidArgument where they break
  /// the constraint.
  Status become(std::span<const TokenId> tokens);
  /// One more.
  Status push(TokenId token);

  struct Allowed {
    TokenMask mask;        // until the text changes
    bool is_over = false;  // there is none
  };
  /// What can follow: stop tokens where the text may end, and nowhere else. Fails as
  /// Matcher::next() does.
  Result<Allowed> allowed(std::span<const TokenId> stop_tokens);

 private:
  ConstrainedText(std::shared_ptr<const Constraint> constraint, std::unique_ptr<Matcher> matcher)
      : constraint_(std::move(constraint)), matcher_(std::move(matcher)) {}

  std::shared_ptr<const Constraint> constraint_;
  std::unique_ptr<Matcher> matcher_;
  std::vector<TokenId> tokens_;
  std::vector<uint32_t> words_;
};

}  // namespace moeflux
