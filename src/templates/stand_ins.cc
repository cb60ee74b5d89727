#include "templates/stand_ins.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/format.h"
#include "text/encoding/unicode.h"
#include "text/encoding/utf8.h"

namespace moeflux {
namespace {

// Plane 15, whose code points are private and all four bytes long: F3 B0..BF 80..BF 80..BF.
constexpr uint32_t kFirst = 0xF0000;
constexpr uint32_t kCountMax = 0xFFFD;  // the next one is kContinuationMark
constexpr size_t kBytes = 4;

std::string code_point(uint32_t index) {
  const uint32_t point = kFirst + index;
  return {static_cast<char>(0xF0 | (point >> 18)), static_cast<char>(0x80 | ((point >> 12) & 0x3F)),
          static_cast<char>(0x80 | ((point >> 6) & 0x3F)),
          static_cast<char>(0x80 | (point & 0x3F))};
}

bool stands_at(std::string_view text, size_t at) {
  return text.size() - at >= kBytes && static_cast<uint8_t>(text[at]) == 0xF3 &&
         static_cast<uint8_t>(text[at + 1]) >= 0xB0;
}

uint32_t index_at(std::string_view text, size_t at) {
  const auto bits = [&](size_t i) { return static_cast<uint32_t>(text[at + i]) & 0x3F; };
  return ((3u << 18) | (bits(1) << 12) | (bits(2) << 6) | bits(3)) - kFirst;
}

/// Words, numbers and white space, in any script: vocabularies have them as added tokens, among
/// them the letters that stand for bytes (DeepSeek's \u00fc).
bool is_of_words(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    if (!is_word_character(step.code_point) && !is_white_space(step.code_point)) return false;
    text.remove_prefix(step.bytes_count);
  }
  return true;
}

/// Elements that vocabularies have for texts in HTML.
bool is_html(std::string_view text) {
  constexpr std::array kElements = {
      "b",     "blockquote", "caption", "code",  "em", "h1",     "h2",  "h3", "h4",
      "h5",    "h6",         "i",       "li",    "ol", "strong", "sub", "p",  "td",
      "tbody", "table",      "th",      "thead", "tr", "sup",    "u",   "ul", "tfoot"};
  if (!text.starts_with('<') || !text.ends_with('>')) return false;
  text = text.substr(1, text.size() - 2);
  if (text.starts_with('/')) text.remove_prefix(1);
  return std::find(kElements.begin(), kElements.end(), text) != kElements.end();
}

/// Something in brackets or between bars, also the wide ones of Chinese and Japanese.
bool is_in_brackets(std::string_view text) {
  constexpr std::u32string_view kBrackets =
      U"<>[]{}|"
      U"\uFF1C\uFF1E\uFF3B\uFF3D\uFF5B\uFF5D\uFF5C\u3008\u3009\u300A\u300B\u3010\u3011\u27E8\u27E9";
  while (!text.empty()) {
    const Utf8Step step = next_utf8(text);
    if (kBrackets.find(step.code_point) != std::u32string_view::npos) return true;
    text.remove_prefix(step.bytes_count);
  }
  return false;
}

bool is_structure(const AddedToken& token) {
  if (token.special) return true;
  // No letter, be it "<", is a marker by itself.
  return token.content.size() > 1 && is_in_brackets(token.content) && !is_html(token.content);
}

AddedTokenMatcher matcher_of(const std::vector<AddedToken>& tokens) {
  std::vector<std::pair<std::string, AddedToken>> needles;
  needles.reserve(tokens.size());
  for (const AddedToken& token : tokens) needles.emplace_back(token.content, token);
  return AddedTokenMatcher(needles);
}

}  // namespace

SpecialSpellings::SpecialSpellings(const std::vector<AddedToken>& added_tokens)
    : all_(matcher_of({})), special_(matcher_of({})) {
  std::vector<AddedToken> special;
  for (const AddedToken& token : added_tokens) {
    if (token.special) special.push_back(token);
    if (is_structure(token)) {
      structure_.push_back(token);
    } else if (token.content.size() > 1 && !is_of_words(token.content)) {
      undecided_.push_back(token);
    }
  }
  all_ = matcher_of(structure_);
  special_ = matcher_of(special);
}

void SpecialSpellings::watch(std::string_view text) {
  const auto is_in = [&](const AddedToken& token) {
    return text.find(token.content) != std::string_view::npos;
  };
  const auto known = structure_.size();
  std::copy_if(undecided_.begin(), undecided_.end(), std::back_inserter(structure_), is_in);
  if (structure_.size() == known) return;
  std::erase_if(undecided_, is_in);
  all_ = matcher_of(structure_);
}

Result<std::string> StandIns::replaced(std::string_view text, const AddedTokenMatcher& spellings) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t bytes_count = spellings.longest_at(text, at).bytes_count;
    // A stand-in must not be found in the input itself.
    if (bytes_count == 0 && stands_at(text, at)) bytes_count = kBytes;
    if (bytes_count == 0) {
      out += text[at++];
      continue;
    }
    const std::string found(text.substr(at, bytes_count));
    const auto [entry, is_new] = index_.try_emplace(found, static_cast<uint32_t>(texts_.size()));
    if (is_new) {
      if (texts_.size() == kCountMax) {
        return make_error(ErrorCode::kResourceExhausted,
                          "messages have more than {} different spellings of special tokens",
                          kCountMax);
      }
      texts_.push_back(found);
    }
    out += code_point(entry->second);
    at += bytes_count;
  }
  return out;
}

Status StandIns::replace(Json& value, const AddedTokenMatcher& spellings) {
  if (value.is_string()) {
    MF_ASSIGN_OR_RETURN(value, replaced(value.get_ref<const std::string&>(), spellings));
  } else if (value.is_array()) {
    for (Json& element : value) MF_RETURN_IF_ERROR(replace(element, spellings));
  } else if (value.is_object()) {
    Json made = Json::object();
    for (auto& [key, element] : value.items()) {
      MF_ASSIGN_OR_RETURN(const std::string name, replaced(key, spellings));
      MF_RETURN_IF_ERROR(replace(element, spellings));
      made[name] = std::move(element);
    }
    value = std::move(made);
  }
  return {};
}

RenderedPrompt StandIns::put_back(std::string_view rendered) const {
  RenderedPrompt prompt;
  for (size_t at = 0; at < rendered.size();) {
    if (!stands_at(rendered, at) || index_at(rendered, at) >= texts_.size()) {
      prompt.text += rendered[at++];
      continue;
    }
    const size_t begin = prompt.text.size();
    prompt.text += texts_[index_at(rendered, at)];
    prompt.inert_ranges.push_back({begin, prompt.text.size()});
    at += kBytes;
  }
  return prompt;
}

}  // namespace moeflux
