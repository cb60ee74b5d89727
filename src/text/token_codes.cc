#include "text/token_codes.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "text/encoding/byte_alphabet.h"
#include "text/encoding/unicode.h"
#include "text/encoding/utf8.h"

namespace moeflux {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// With one space for each run of JSON's.
std::string with_single_spaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_space = is_json_space(c);
    if (is_space && out.ends_with(' ')) continue;
    out.push_back(is_space ? ' ' : c);
  }
  return out;
}

std::string_view stripped(std::string_view text) {
  size_t begin = text.size();
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = next_utf8(text.substr(at));
    if (!is_white_space(step.code_point)) {
      begin = std::min(begin, at);
      end = at + step.bytes_count;
    }
    at += step.bytes_count;
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view{};
}

/// The text that tokens of one code share.
std::string key_of(const std::string& text) {
  const std::string folded = with_single_spaces(fold_letters(text));
  if (folded == " ") return folded;
  const std::string_view key = stripped(folded);
  return key.empty() ? text : std::string(key);
}

}  // namespace

std::vector<int32_t> token_codes(const Tokenizer& tokenizer) {
  std::map<TokenId, std::string_view> added;
  for (const AddedToken& token : tokenizer.added_tokens()) added[token.id] = token.content;
  std::unordered_map<std::string, int32_t> codes;
  std::vector<int32_t> all;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string text = tokenizer.decode({&id, 1});
    std::string key;
    if (text.find(kReplacement) == std::string::npos) {
      key = key_of(text);
    } else {
      const auto found = added.find(id);
      key = found != added.end() ? std::string(found->second)
                                 : spelling_of_bytes(tokenizer.token_bytes(id));
    }
    all.push_back(
        codes.try_emplace(std::move(key), static_cast<int32_t>(codes.size())).first->second);
  }
  return all;
}

}  // namespace moeflux
