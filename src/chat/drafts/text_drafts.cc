#include "chat/drafts/text_drafts.h"

#include <algorithm>

namespace moeflux {
namespace {

// Places that are compared: of a text that repeats itself, the last ones are as good as others.
constexpr int kPlacesMax = 16;
constexpr size_t kMatchMax = 256;

}  // namespace

uint64_t TextDrafts::hash_of_end() const {
  uint64_t hash = 0;
  for (const TokenId token : std::span(text_).last(match_min_)) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

void TextDrafts::push(TokenId token) {
  text_.push_back(token);
  before_.push_back(0);
  if (text_.size() < match_min_) return;
  uint32_t& last = last_[hash_of_end()];
  before_.back() = last;
  last = static_cast<uint32_t>(text_.size());
}

// How many tokens before `end` are those at the text's end.
size_t TextDrafts::matched(size_t end) const {
  size_t count = 0;
  while (count < std::min(end, kMatchMax) &&
         text_[end - 1 - count] == text_[text_.size() - 1 - count]) {
    ++count;
  }
  return count;
}

std::vector<TokenId> TextDrafts::draft(int64_t tokens_max) const {
  size_t longest = 0;
  size_t from = 0;
  uint32_t place = text_.empty() ? 0 : before_.back();
  for (int i = 0; place > 0 && i < kPlacesMax; ++i, place = before_[place - 1]) {
    const size_t match = matched(place);
    if (match <= longest) continue;
    longest = match;
    from = place;
  }
  if (longest < match_min_) return {};  // a hash of other tokens
  const size_t count = std::min(static_cast<size_t>(std::max<int64_t>(tokens_max, 0)), longest);
  std::vector<TokenId> tokens;
  // A repetition that lasts until the end goes on.
  for (size_t i = 0; i < count; ++i) {
    const size_t at = from + i;
    tokens.push_back(at < text_.size() ? text_[at] : tokens[at - text_.size()]);
  }
  return tokens;
}

}  // namespace moeflux
