// Byte-pair encoding whose first symbols are characters, with tokens of single bytes for those that
// are no token. Immutable and thread-safe once made; scratch is the caller's.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/bpe/merge_table.h"
#include "text/vocabulary/vocabulary.h"

namespace moeflux {

/// The tokens of a character that is not in the vocabulary: its bytes' tokens if `by_byte` has all
/// of its bytes, else `unknown`, else none.
struct CharacterFallback {
  std::array<TokenId, 256> by_byte;  // -1: none
  TokenId unknown = -1;              // likewise
  bool has_bytes = false;            // some at least
  bool fuses_unknown = true;         // one for a run of such characters
};

class CharacterBpe {
 public:
  /// A token that merging may start from, go through or end at.
  struct Symbol {
    std::string_view text;  // well-formed UTF-8
    TokenId id = 0;
    float score = 0;         // the highest merges first, the leftmost of equals
    bool is_unused = false;  // met while merging, but never a result
  };

  /// Neighbours merge when their text together is a symbol. Ids are below `ids_end`. Fails with
  /// kCorruption when two symbols have one text or a score is no number, and with
  /// kResourceExhausted when more than 2^22 pairs of symbols make a symbol. Quadratic in the length
  /// of the longest symbol.
  static Result<CharacterBpe> create_from_scores(const std::vector<Symbol>& symbols,
                                                 const CharacterFallback& fallback,
                                                 TokenId ids_end);

  /// Neighbours merge when "left right" is in the list, the first ones first. Fails with
  /// kCorruption, naming the merge, when a part or the whole is no symbol; scores and is_unused are
  /// not heeded.
  static Result<CharacterBpe> create_from_merges(
      const std::vector<Symbol>& symbols, const CharacterFallback& fallback, TokenId ids_end,
      const std::vector<std::pair<std::string_view, std::string_view>>& merges);

  struct Scratch {
    std::vector<TokenId> characters;
    std::vector<TokenId> merged;
    MergeTable::Scratch merging;
  };

  /// Appends the tokens of a non-empty piece of well-formed UTF-8. O(n log n).
  void append(std::string_view piece, Scratch* scratch, std::vector<TokenId>* out) const;

  /// -1 where there is none.
  TokenId byte_token(char byte) const { return fallback_.by_byte[static_cast<uint8_t>(byte)]; }

 private:
  CharacterBpe(const CharacterFallback& fallback, TokenId ids_end)
      : fallback_(fallback), ids_end_(ids_end) {}
  Status add_symbols(const std::vector<Symbol>& symbols);
  Status add_missing_characters(const std::vector<Symbol>& symbols);
  void append_fallback(std::string_view character, std::vector<TokenId>* out) const;

  // Text to id. Characters that occur in symbols but are none get ids from ids_end_ on.
  Vocabulary symbols_;
  MergeTable merges_;
  CharacterFallback fallback_;
  TokenId ids_end_;
};

}  // namespace moeflux
