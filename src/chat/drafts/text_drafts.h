// Drafts from the text itself: where its end has come before, what followed there may follow again.
// Knows tokens, no model.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "chat/drafts/draft_source.h"

namespace moeflux {

/// An index of one text. Not thread-safe. Takes some 40 bytes a token.
class TextDrafts {
 public:
  /// Ends of `match_min` tokens, at least one, are found.
  explicit TextDrafts(int64_t match_min) : match_min_(static_cast<size_t>(match_min)) {}

  /// Appends tokens: prompt or generated. The last thousand of them also show how often guesses
  /// are right.
  void append(std::span<const TokenId> tokens);
  std::span<const TokenId> text() const { return text_; }
  int64_t length() const { return static_cast<int64_t>(text_.size()); }
  /// At most `tokens_max` tokens: each is what follows the longest earlier text that the end with
  /// the tokens before it repeats, the latest of equals, where that is likely to be right. Ends
  /// where a token is likelier wrong than right.
  Draft draft(int64_t tokens_max);

 private:
  struct Guess {
    TokenId token = 0;
    size_t place = 0;              // in the text, of the token
    size_t repeated = 0;           // tokens before it that are those at the end
    double* acceptance = nullptr;  // how often such guesses are right
  };
  /// How many of the other places agree.
  enum Agreement : uint8_t { kAlone, kAll, kMost, kFew };
  static constexpr size_t kLevels = 8;  // of repeated tokens: 0, 1, 2 to 3, 4 to 7, ...
  using Acceptance = std::array<std::array<double, 4>, kLevels>;

  uint64_t hash_of_end() const;
  size_t matched(size_t place) const;
  std::optional<Guess> guess(size_t followed, size_t repeated);
  void index(TokenId token);
  void learn(TokenId token);

  size_t match_min_;
  /// The token that comes next where the text is copied from, from 1 on; 0: it is not known.
  size_t copied_ = 0;
  size_t repeated_ = 0;  // tokens before it that are those at the end
  std::vector<TokenId> text_;
  /// By the hash of its last match_min_ tokens, the last place where they end; and for each place,
  /// the one before. Places count from 1; 0: none.
  std::unordered_map<uint64_t, uint32_t> last_;
  std::vector<uint32_t> before_;
  /// By level and agreement; begins with what benchmarks/texts have.
  Acceptance acceptance_ = {{{0.35, 0.89, 0.6, 0.17},
                             {0.35, 0.89, 0.6, 0.17},
                             {0.35, 0.89, 0.6, 0.17},
                             {0.64, 0.97, 0.83, 0.45},
                             {0.85, 0.98, 0.87, 0.6},
                             {0.9, 0.99, 0.9, 0.65},
                             {0.97, 0.99, 0.95, 0.85},
                             {0.97, 0.99, 0.95, 0.85}}};
};

}  // namespace moeflux
