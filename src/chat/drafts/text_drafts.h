// Drafts from the text itself: where its end has come before, what followed there may follow again.
// Knows tokens, no model.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace moeflux {

/// An index of one text. Not thread-safe. Takes some 40 bytes a token.
class TextDrafts {
 public:
  /// Ends of `match_min` tokens, at least one, are found.
  explicit TextDrafts(int64_t match_min) : match_min_(static_cast<size_t>(match_min)) {}

  /// Appends a token: prompt or generated.
  void push(TokenId token);
  std::span<const TokenId> text() const { return text_; }
  int64_t length() const { return static_cast<int64_t>(text_.size()); }
  /// The tokens behind the longest earlier text that the end repeats, the latest of equals, or
  /// behind the place from which the text was copied before it differed there. At most `tokens_max`
  /// tokens, and hardly more than are repeated: a longer match goes on for longer. Empty without
  /// one.
  std::vector<TokenId> draft(int64_t tokens_max);
  /// The tokens at the end that stand before what draft() has given last.
  int64_t repeated() const { return static_cast<int64_t>(repeated_); }

 private:
  uint64_t hash_of_end() const;
  size_t matched(size_t end) const;
  void follow(TokenId token);
  void rejoin();
  void find_longest();

  size_t match_min_;
  /// The token that comes next where the text is copied from, from 1 on; 0: it is not known.
  size_t copied_ = 0;
  size_t repeated_ = 0;   // tokens before it that are those at the end
  size_t differing_ = 0;  // tokens at the end behind a first that was not the one at `copied_`
  std::vector<TokenId> text_;
  /// By the hash of its last match_min_ tokens, the last place where they end; and for each place,
  /// the one before. Places count from 1; 0: none.
  std::unordered_map<uint64_t, uint32_t> last_;
  std::vector<uint32_t> before_;
};

}  // namespace moeflux
