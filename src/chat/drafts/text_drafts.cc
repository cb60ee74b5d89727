#include "chat/drafts/text_drafts.h"

#include <algorithm>
#include <bit>

namespace moeflux {
namespace {

// Places that are compared: of a text that repeats itself, the last ones are as good as others.
constexpr int kPlacesMax = 16;
constexpr size_t kMatchMax = 64;
// The last tokens of a long prompt are most like the answer, and each takes a microsecond.
constexpr size_t kLearnedMax = 1024;
constexpr double kOutcomeWeight = 1.0 / 16;
// Over benchmarks/texts a least likelihood of 0.4 to 0.6 gives the same speed, none a tenth less.
constexpr double kLikely = 0.5;

}  // namespace

uint64_t TextDrafts::hash_of_end() const {
  uint64_t hash = 0;
  for (const TokenId token : std::span(text_).last(match_min_)) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  }
  return hash;
}

void TextDrafts::append(std::span<const TokenId> tokens) {
  const size_t unlearned = tokens.size() - std::min(tokens.size(), kLearnedMax);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i >= unlearned) learn(tokens[i]);
    index(tokens[i]);
  }
}

void TextDrafts::index(TokenId token) {
  text_.push_back(token);
  before_.push_back(0);
  if (text_.size() < match_min_) return;
  uint32_t& last = last_[hash_of_end()];
  before_.back() = last;
  last = static_cast<uint32_t>(text_.size());
}

// A guess before the token comes is compared with it.
void TextDrafts::learn(TokenId token) {
  const std::optional<Guess> guessed = guess(copied_, repeated_);
  copied_ = 0;
  if (!guessed) return;
  const bool is_right = guessed->token == token;
  *guessed->acceptance += kOutcomeWeight * ((is_right ? 1.0 : 0.0) - *guessed->acceptance);
  if (!is_right) return;
  copied_ = guessed->place + 1;
  repeated_ = guessed->repeated + 1;
}

// How many tokens before `place` are those at the text's end.
size_t TextDrafts::matched(size_t place) const {
  const size_t most = std::min(place, kMatchMax);
  size_t count = 0;
  while (count < most && text_[place - 1 - count] == text_[text_.size() - 1 - count]) ++count;
  return count;
}

// `followed` is a place, or 0, whose last `repeated` tokens are those at the end.
std::optional<TextDrafts::Guess> TextDrafts::guess(size_t followed, size_t repeated) {
  if (text_.size() < match_min_) return std::nullopt;
  const auto last = last_.find(hash_of_end());
  size_t place = last == last_.end() ? 0 : last->second;
  if (place == text_.size()) place = before_[place - 1];
  std::array<TokenId, kPlacesMax + 1> found;
  size_t count = 0;
  Guess best;
  const auto consider = [&](size_t at, size_t match) {
    found[count++] = text_[at];
    if (count == 1 || match > best.repeated) best = {text_[at], at, match, nullptr};
  };
  if (followed > 0) consider(followed, repeated);
  for (int i = 0; place > 0 && i < kPlacesMax; ++i, place = before_[place - 1]) {
    if (place == followed) continue;
    const size_t match = matched(place);
    if (match >= match_min_) consider(place, match);  // or a hash of other tokens
  }
  if (count == 0) return std::nullopt;
  const auto same =
      static_cast<size_t>(std::count(found.begin(), found.begin() + count, best.token));
  const Agreement agreement = count == 1         ? kAlone
                              : same == count    ? kAll
                              : 2 * same > count ? kMost
                                                 : kFew;
  const size_t level = std::min<size_t>(std::bit_width(best.repeated), kLevels - 1);
  best.acceptance = &acceptance_[level][agreement];
  return best;
}

// Drafted tokens are the text's for as long as the next ones are looked for, so a repetition that
// lasts until the end goes on.
Draft TextDrafts::draft(int64_t tokens_max) {
  Draft draft;
  const size_t length = text_.size();
  size_t followed = copied_;
  size_t repeated = repeated_;
  double likely = 1.0;
  while (std::ssize(draft.tokens) < tokens_max) {
    const std::optional<Guess> next = guess(followed, repeated);
    if (!next) break;
    likely *= *next->acceptance;
    if (likely < kLikely) break;
    draft.tokens.push_back(next->token);
    draft.confidences.push_back(static_cast<float>(*next->acceptance));
    text_.push_back(next->token);
    followed = next->place + 1;
    repeated = next->repeated + 1;
  }
  text_.resize(length);
  return draft;
}

}  // namespace moeflux
