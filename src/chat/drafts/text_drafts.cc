#include "chat/drafts/text_drafts.h"

#include <algorithm>

namespace moeflux {
namespace {

// Places that are compared: of a text that repeats itself, the last ones are as good as others.
constexpr int kPlacesMax = 16;
constexpr size_t kMatchMax = 256;
// A copy that differs goes on behind so many equal tokens near by. Over benchmarks/texts two found
// more than three or four: 3.5 tokens a step of an array, 2.3 without.
constexpr size_t kRejoinMin = 2;
constexpr size_t kRejoinBefore = 4;
constexpr size_t kRejoinBehind = 24;
constexpr size_t kDifferingMax = 32;
constexpr size_t kDraftMin = 4;

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
  follow(token);
  text_.push_back(token);
  before_.push_back(0);
  if (differing_ > 0) rejoin();
  if (text_.size() < match_min_) return;
  uint32_t& last = last_[hash_of_end()];
  before_.back() = last;
  last = static_cast<uint32_t>(text_.size());
}

void TextDrafts::follow(TokenId token) {
  if (copied_ == 0) return;
  if (differing_ == 0 && text_[copied_] == token) {
    ++copied_;
    ++repeated_;
  } else if (++differing_ > kDifferingMax) {
    copied_ = differing_ = 0;
  }
}

// Where the end stands again near the copied place: as many tokens behind it as differ, or as near
// to that as possible.
void TextDrafts::rejoin() {
  const size_t end = text_.size();
  const size_t likely = copied_ + differing_;
  size_t best = 0;
  const size_t first = std::max(copied_, kRejoinBefore + kRejoinMin) - kRejoinBefore;
  for (size_t at = first; at < std::min(end, likely + kRejoinBehind + 1); ++at) {
    const auto distance = [&](size_t place) {
      return std::max(place, likely) - std::min(place, likely);
    };
    if (best > 0 && distance(at) >= distance(best)) continue;
    if (!std::equal(text_.end() - kRejoinMin, text_.end(),
                    text_.begin() + static_cast<ptrdiff_t>(at - kRejoinMin)))
      continue;
    best = at;
  }
  if (best == 0) return;
  copied_ = best;
  repeated_ = kRejoinMin;
  differing_ = 0;
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

// A longer repetition than that of the place that is followed.
void TextDrafts::find_longest() {
  size_t longest = differing_ > 0 || copied_ == 0 ? 0 : repeated_;
  uint32_t place = text_.empty() ? 0 : before_.back();
  for (int i = 0; place > 0 && i < kPlacesMax; ++i, place = before_[place - 1]) {
    const size_t match = matched(place);
    if (match <= longest || match < match_min_) continue;  // or a hash of other tokens
    longest = match;
    copied_ = place;
    repeated_ = match;
    differing_ = 0;
  }
}

std::vector<TokenId> TextDrafts::draft(int64_t tokens_max) {
  find_longest();
  if (copied_ == 0 || differing_ > 0) return {};
  const size_t count = std::min(static_cast<size_t>(std::max<int64_t>(tokens_max, 0)),
                                std::max(repeated_, kDraftMin));
  std::vector<TokenId> tokens;
  // A repetition that lasts until the end goes on.
  for (size_t i = 0; i < count; ++i) {
    const size_t at = copied_ + i;
    tokens.push_back(at < text_.size() ? text_[at] : tokens[at - text_.size()]);
  }
  return tokens;
}

}  // namespace moeflux
