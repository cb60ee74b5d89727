// Cuts text into the pieces that BPE works on: the pre_tokenizer of tokenizer.json.
// Immutable and thread-safe; a call allocates what it needs and keeps nothing.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "text/regex.h"

namespace moeflux {

/// What a ByteLevel without a pattern of its own splits by.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class PreTokenizer {
 public:
  /// Splits by each pattern in turn; by none at all when there are none.
  static Result<PreTokenizer> create(std::span<const std::string_view> patterns);

  /// Reads a Sequence of Split (Isolated), Digits and a final ByteLevel, or a lone ByteLevel. Fails
  /// with kUnsupported, naming the type or field, for everything else.
  static Result<PreTokenizer> parse(const Json& spec);

  /// One matcher per pattern, to be made once per encode() call.
  std::vector<Regex::Matcher> make_matchers() const;

  /// Whether a piece not beginning with a space gets one in front (ByteLevel's add_prefix_space;
  /// it applies before the ByteLevel's own pattern and after all other splits).
  bool add_prefix_space() const { return add_prefix_space_; }

  /// Replaces `pieces` (views into well-formed UTF-8, none empty) by the pieces of the splits.
  /// `prefixed` receives the strings that add_prefix_space made; pieces may point into them, so it
  /// must not move before the pieces are used.
  Status split(std::vector<Regex::Matcher>& matchers, std::vector<std::string_view>* pieces,
               std::vector<std::string>* prefixed) const;

 private:
  Status add_spec(const Json& spec, bool is_last);
  Status add_split(const Json& spec);
  Status add_byte_level(const Json& spec);
  Status add_pattern(std::string_view pattern);

  std::vector<Regex> patterns_;
  size_t patterns_before_byte_level_ = 0;
  bool has_byte_level_ = false;
  bool add_prefix_space_ = false;
};

}  // namespace moeflux
