// Cuts text into the pieces that BPE works on: the pre_tokenizer of tokenizer.json.
// Immutable and thread-safe; a call allocates what it needs and keeps nothing.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "text/regex/regex.h"

namespace moeflux {

/// The pattern of a ByteLevel that has none of its own.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// The treatment of a pattern's matches, as the `tokenizers` library names it.
enum class SplitBehavior : uint8_t {
  kIsolated,            // a match is a piece, and so is the text between two matches
  kRemoved,             // a match is no part of any piece
  kContiguous,          // matches in a row are one piece
  kMergedWithPrevious,  // a match ends the piece before it, unless that is a match
  kMergedWithNext,      // and likewise
};

class PreTokenizer {
 public:
  /// Splits by each pattern in turn, isolated; by none at all when there are none. The last
  /// `spelled_count` see pieces in the byte alphabet.
  static Result<PreTokenizer> create(std::span<const std::string_view> patterns,
                                     size_t spelled_count = 0);

  /// Reads a Sequence of Split, Digits, Punctuation and one ByteLevel, or a lone ByteLevel. Splits
  /// behind a ByteLevel see the text in the byte alphabet, as in Falcon's files. Fails with
  /// kUnsupported, naming the type or field, for everything else.
  static Result<PreTokenizer> parse(const Json& spec);

  /// One matcher per pattern, to be made once per encode() call.
  std::vector<Regex::Matcher> make_matchers() const;

  /// Replaces `pieces` (views into well-formed UTF-8, none empty) by the pieces of the splits, none
  /// empty; only splits in the byte alphabet cut a character.
  /// `prefixed` receives the strings that add_prefix_space made; pieces may point into them, so it
  /// must not move before the pieces are used.
  Status split(std::vector<Regex::Matcher>& matchers, std::vector<std::string_view>* pieces,
               std::vector<std::string>* prefixed) const;

 private:
  struct Split {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool inverts = false;  // matches are what lies between them
  };
  Status add_spec(const Json& spec);
  Status add_split(const Json& spec);
  Status add_byte_level(const Json& spec);
  Status add_split(std::string_view pattern, Split how);
  Status add_splits(std::span<const std::string_view> patterns);
  Status add_pattern(std::string_view pattern, Split how);

  std::vector<Split> splits_;
  std::vector<Regex> patterns_;  // of each
  size_t splits_before_byte_level_ = 0;
  size_t splits_of_text_ = 0;  // later splits see the byte alphabet
  bool has_byte_level_ = false;
  /// Whether a piece not beginning with a space gets one in front: ByteLevel's, before its own
  /// pattern and after all other splits.
  bool add_prefix_space_ = false;
};

}  // namespace moeflux
