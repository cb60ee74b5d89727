// Writes a grammar in llguidance's Lark over the tokens of a vocabulary: what a vocabulary has a
// marker for is that token, all else is text.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "constraint/output_constraint.h"
#include "text/tokenizer.h"

namespace moeflux {

class LarkText {
 public:
  /// The tokenizer must outlive it.
  explicit LarkText(const Tokenizer& tokenizer);

  /// A text as a sequence of markers and literals, "" where it is empty.
  std::string spell(std::string_view text) const;
  /// The text begins with a marker, or is spelled.
  bool begins_with_marker(std::string_view text) const;

  /// A terminal of any text in which none of `stops` stands, and that none of `starts` begins
  /// behind white space, as far as they are spelled.
  std::string text_without(const std::vector<std::string>& stops,
                           const std::vector<std::string>& starts = {});
  /// The same, and then `end`: text up to the first `end`, that included.
  std::string text_until(const std::string& end, const std::vector<std::string>& stops = {});

  /// Defines a rule and gives its name, of which `what` is a part; upper case makes it a terminal.
  std::string rule(std::string_view what, const std::string& body);
  /// The name alone, for a rule that its own body names; define() it once.
  std::string reserve(std::string_view what);
  void define(const std::string& name, const std::string& body);
  /// Adds another grammar and gives its reference, @name. Messages call it `source`.
  std::string part(OutputConstraint constraint);

  /// Fails with kResourceExhausted, naming `source`, where there is more text than a constraint may
  /// have: what a request names once can be written many times.
  Status check_size(std::string_view source) const;
  /// All that was defined, with a rule to begin with.
  OutputConstraint finish(const std::string& start, std::string source);

 private:
  struct Piece {
    std::string_view text;
    TokenId marker = -1;
  };
  std::vector<Piece> pieces(std::string_view text) const;
  std::string either_of(const std::vector<std::string>& texts) const;

  std::array<std::vector<const AddedToken*>, 256> markers_;  // by their first byte
  uint64_t part_bytes_ = 0;
  std::string definitions_;
  Json parts_ = Json::array();
  std::map<std::string, std::string> sources_;
  int count_ = 0;
};

std::string lark_literal(std::string_view text);
/// Text as a regular expression within slashes that matches it alone.
std::string regex_escaped(std::string_view text);

}  // namespace moeflux
