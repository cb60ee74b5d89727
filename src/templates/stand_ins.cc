#include "templates/stand_ins.h"

#include <algorithm>

#include "base/format.h"

namespace moeflux {
namespace {

// Plane 15, whose code points are private and all four bytes long: F3 B0..BF 80..BF 80..BF.
constexpr uint32_t kFirst = 0xF0000;
constexpr uint32_t kCountMax = 0xFFFE;
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

bool is_structure(const AddedToken& token) {
  if (token.special) return true;
  return std::any_of(token.content.begin(), token.content.end(), [](char c) {
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    const bool is_space = c == ' ' || c == '\n' || c == '\t' || c == '\r';
    return !is_word && !is_space;
  });
}

std::vector<std::pair<std::string, AddedToken>> needles_of(const std::vector<AddedToken>& tokens,
                                                           bool only_special) {
  std::vector<std::pair<std::string, AddedToken>> needles;
  for (const AddedToken& token : tokens) {
    if (only_special ? token.special : is_structure(token))
      needles.emplace_back(token.content, token);
  }
  return needles;
}

}  // namespace

SpecialSpellings::SpecialSpellings(const std::vector<AddedToken>& added_tokens)
    : all_(needles_of(added_tokens, false)), special_(needles_of(added_tokens, true)) {}

Result<std::string> StandIns::replaced(std::string_view text, const AddedTokenMatcher& spellings) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t bytes_count = spellings.longest_at(text, at).bytes_count;
    // What stands for something must not be found in the input itself.
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
