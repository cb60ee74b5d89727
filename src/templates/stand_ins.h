// Keeps what users write from becoming a model's special tokens. Before rendering, each spelling of
// such a token in untrusted text becomes one private code point, which no template can mistake for
// its own markers; afterwards the spelling is put back, and where it lies is told to the tokenizer.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/encoding/byte_range.h"
#include "text/vocabulary/added_tokens.h"

namespace moeflux {

/// A private code point that stands for nothing: what is looked for in a rendering (U+FFFFD).
inline constexpr std::string_view kContinuationMark = "\xF3\xBF\xBF\xBD";

struct RenderedPrompt {
  std::string text;
  /// Parts of `text` that spell a special token and are none: EncodeOptions::inert_ranges. Sorted.
  std::vector<ByteRange> inert_ranges;
};

/// The tokens whose spelling has to be watched. Immutable; threads may share one.
class SpecialSpellings {
 public:
  SpecialSpellings() : SpecialSpellings(std::vector<AddedToken>()) {}
  /// All special tokens and, of the others, those that look like structure: something in brackets.
  /// Words and letters are never structure, be they added tokens or not.
  explicit SpecialSpellings(const std::vector<AddedToken>& added_tokens);

  /// Records a template's own text: other added tokens that are found there are structure, too.
  void watch(std::string_view text);

  const AddedTokenMatcher& all() const { return all_; }
  /// For what the assistant said: tags of reasoning and calls, which are ordinary tokens, are its
  /// own there, and templates look for them.
  const AddedTokenMatcher& special() const { return special_; }

 private:
  std::vector<AddedToken> structure_;
  std::vector<AddedToken> undecided_;
  AddedTokenMatcher all_;
  AddedTokenMatcher special_;
};

/// One rendering's table of what stands for what.
class StandIns {
 public:
  /// Replaces what `spellings` finds in all strings and keys of a value. Fails with
  /// kResourceExhausted when there are more different ones than private code points (65,533).
  Status replace(Json& value, const AddedTokenMatcher& spellings);
  /// Undoes it in a rendered text.
  RenderedPrompt put_back(std::string_view rendered) const;

 private:
  Result<std::string> replaced(std::string_view text, const AddedTokenMatcher& spellings);

  std::unordered_map<std::string, uint32_t> index_;
  std::vector<std::string> texts_;  // by code point - U+F0000
};

}  // namespace moeflux
