// A text that is held to a constraint, in step with its tokens: which may be drawn next.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/token_mask.h"
#include "constraint/constraint.h"

namespace moeflux {

/// Not thread-safe, but for stop(). All functions that fail also fail as Constraint::start() does.
class ConstrainedText {
 public:
  /// Without a token. Its matcher, which can be large, begins with what is asked first.
  static std::shared_ptr<ConstrainedText> make(std::shared_ptr<const Constraint> constraint);

  const std::shared_ptr<const Constraint>& constraint() const { return constraint_; }

  /// The text is these tokens, whatever it was before. Fails with kInvalidArgument where they break
  /// the constraint.
  Status become(std::span<const TokenId> tokens);
  /// One more.
  Status push(TokenId token);

  /// One more, unless it is none, and all that takes long of what allowed() then tells.
  Status advance(std::optional<TokenId> token);
  /// Behind advance(): the same of what allowed() tells behind each of `drafts`, as many as may
  /// follow and take little time together.
  Status look_ahead(std::span<const TokenId> drafts);
  /// Tokens behind the text whose allowed() is known: they may follow.
  std::span<const TokenId> ahead() const { return std::span(ahead_).subspan(followed_); }
  /// The text has one more token, if it is the first of ahead(). False where it is not.
  bool follow_ahead(TokenId token);

  struct Allowed {
    TokenMask mask;        // until the text changes
    bool is_over = false;  // there is none
  };
  /// The tokens that can follow: stop tokens where the text may end, and nowhere else. Fails as
  /// Matcher::next() does.
  Result<Allowed> allowed(std::span<const TokenId> stop_tokens);

  /// For any thread: what another does here ends soon, and fails as all later calls do.
  void stop();

 private:
  explicit ConstrainedText(std::shared_ptr<const Constraint> constraint)
      : constraint_(std::move(constraint)) {}
  /// A copy of Matcher::Next.
  struct Step {
    std::vector<uint32_t> words;
    bool may_end = false;
    bool must_end = false;
  };
  Status begin();
  Status start_anew();
  Result<Step> step();

  std::shared_ptr<const Constraint> constraint_;
  std::mutex mutex_;  // guards is_stopped_, and matcher_ as it is set
  bool is_stopped_ = false;
  std::unique_ptr<Matcher> matcher_;
  std::vector<TokenId> tokens_;  // the matcher's
  std::vector<TokenId> ahead_;   // behind these
  size_t followed_ = 0;          // tokens of ahead_ that the text has, and the matcher not yet
  std::vector<Step> steps_;      // behind tokens_ and each of ahead_, where there are any
  std::vector<uint32_t> words_;
};

}  // namespace moeflux
