// The normaliser of SentencePiece models: replacements by a table that the model brings along, and
// what becomes of spaces. Immutable and thread-safe once made.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/vocabulary/added_tokens.h"

namespace moeflux {

/// The fields of NormalizerSpec that matter, and user-defined symbols.
struct SentencePieceRules {
  std::string precompiled_charsmap;  // empty: characters stay as they are
  bool add_dummy_prefix = true;      // a text begins with a space
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;     // spaces become U+2581
  bool whitespace_as_suffix = false;  // the dummy goes behind the text
  std::vector<AddedToken> symbols;    // stay as they are, and are one token each
};

class SentencePieceNormalizer {
 public:
  /// Fails with kCorruption when the table of replacements is broken.
  static Result<SentencePieceNormalizer> create(SentencePieceRules rules);

  /// The text that is cut into tokens, of well-formed UTF-8. Linear in the text, but for the
  /// longest rule and symbol.
  std::string apply(std::string_view text) const;

  /// Finds the user-defined symbols in normalised text.
  const AddedTokenMatcher& symbols() const { return symbols_; }

 private:
  explicit SentencePieceNormalizer(SentencePieceRules rules)
      : rules_(std::move(rules)), symbols_(needles_of(rules_.symbols)) {}
  static std::vector<std::pair<std::string, AddedToken>> needles_of(
      const std::vector<AddedToken>& symbols);

  struct Step {
    std::string_view text;  // the replacement of the characters read
    size_t bytes_count;     // how many bytes they are
  };
  Step next(std::string_view rest) const;
  Step longest_rule(std::string_view rest) const;
  void append(std::string_view text, std::string* out) const;

  SentencePieceRules rules_;
  AddedTokenMatcher symbols_;
  // Within rules_.precompiled_charsmap: a double-array trie of little-endian words whose values are
  // places in a list of strings that end with a zero.
  size_t words_count_ = 0;
  size_t strings_begin_ = 0;
};

}  // namespace moeflux
