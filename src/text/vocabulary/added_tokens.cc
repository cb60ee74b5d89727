// A trie walked from every position whose byte begins a needle.
#include "text/vocabulary/added_tokens.h"

#include <algorithm>

#include "text/encoding/unicode.h"
#include "text/encoding/utf8.h"

namespace moeflux {
namespace {

// The character that ends at `end`; the text is well-formed and `end` a boundary above 0.
Utf8Step character_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0u) == 0x80) --begin;
  return next_utf8(text.substr(begin, end - begin));
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word_character(character_before(text, begin).code_point)) return false;
  return end == text.size() || !is_word_character(next_utf8(text.substr(end)).code_point);
}

size_t skip_space_left(std::string_view text, size_t begin, size_t limit) {
  while (begin > limit) {
    const Utf8Step step = character_before(text, begin);
    if (!is_white_space(step.code_point)) break;
    begin -= step.bytes_count;
  }
  return begin;
}

size_t skip_space_right(std::string_view text, size_t end) {
  while (end < text.size()) {
    const Utf8Step step = next_utf8(text.substr(end));
    if (!is_white_space(step.code_point)) break;
    end += step.bytes_count;
  }
  return end;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(
    const std::vector<std::pair<std::string, AddedToken>>& needles) {
  nodes_.emplace_back();
  const auto add_node = [&] {
    nodes_.emplace_back();
    return static_cast<uint32_t>(nodes_.size() - 1);
  };
  for (const auto& [text, token] : needles) {
    if (text.empty()) continue;
    uint32_t& root = roots_[static_cast<uint8_t>(text[0])];
    if (root == 0) root = add_node();
    uint32_t node = root;
    for (size_t i = 1; i < text.size(); ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      const auto& children = nodes_[node].children;
      const auto child = std::find_if(children.begin(), children.end(),
                                      [&](const auto& entry) { return entry.first == byte; });
      if (child != children.end()) {
        node = child->second;
        continue;
      }
      const uint32_t made = add_node();
      nodes_[node].children.emplace_back(byte, made);
      node = made;
    }
    if (nodes_[node].needle >= 0) continue;
    nodes_[node].needle = static_cast<int32_t>(flags_.size());
    flags_.push_back(token);
  }
}

AddedTokenMatcher::Found AddedTokenMatcher::longest_at(std::string_view text, size_t begin) const {
  Found found;
  uint32_t node = roots_[static_cast<uint8_t>(text[begin])];
  size_t end = begin + 1;
  while (node != 0) {
    if (nodes_[node].needle >= 0) found = {end - begin, nodes_[node].needle};
    if (end == text.size()) break;
    const auto byte = static_cast<uint8_t>(text[end++]);
    const auto& children = nodes_[node].children;
    const auto child = std::find_if(children.begin(), children.end(),
                                    [&](const auto& entry) { return entry.first == byte; });
    node = child == children.end() ? 0 : child->second;
  }
  return found;
}

void AddedTokenMatcher::split(std::string_view text, std::vector<TextSegment>* out,
                              std::span<const ByteRange> inert) const {
  size_t done = 0;
  size_t at = 0;
  while (at < text.size()) {
    while (!inert.empty() && inert.front().end <= at) inert = inert.subspan(1);
    if (!inert.empty() && inert.front().begin <= at) {
      at = inert.front().end;
      continue;
    }
    const size_t limit = inert.empty() ? text.size() : std::min(text.size(), inert.front().begin);
    const Found found = longest_at(text.substr(0, limit), at);
    if (found.needle < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = flags_[static_cast<size_t>(found.needle)];
    size_t begin = at;
    size_t end = at + found.bytes_count;
    at = end;
    if (token.single_word && !stands_alone(text, begin, end)) continue;
    if (token.lstrip) begin = skip_space_left(text, begin, done);
    if (token.rstrip) end = skip_space_right(text, end);
    if (done < begin) out->push_back({text.substr(done, begin - done), -1});
    out->push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) out->push_back({text.substr(done), -1});
}

}  // namespace moeflux
