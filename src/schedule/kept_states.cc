#include "schedule/kept_states.h"

#include <algorithm>
#include <utility>

namespace moeflux {

KeptStates::Match KeptStates::find(std::span<const TokenId> tokens, std::string_view client) const {
  Match match;
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (texts_[i].client != client) continue;
    const int64_t common = common_tokens(texts_[i].state.tokens(), tokens);
    match.common = std::max(match.common, common);
    const int64_t usable = texts_[i].state.usable(common);
    if (usable <= match.usable) continue;
    match.usable = usable;
    match.at = i;
  }
  return match;
}

Result<TextState> KeptStates::begin(const Match& match) {
  use(match);
  Kept& kept = texts_[match.at];
  if (match.usable < kept.state.length()) return kept.state.branch(match.usable);
  TextState whole = std::move(kept.state);
  texts_.erase(texts_.begin() + static_cast<ptrdiff_t>(match.at));
  return whole;
}

void KeptStates::keep(TextState text, std::string client) {
  if (text.length() == 0 || text.length() > tokens_max_) return;
  texts_.push_back({.state = std::move(text), .client = std::move(client), .last_use = ++uses_});
  while (tokens() > tokens_max_) evict();
}

bool KeptStates::evict() {
  const auto oldest = std::ranges::min_element(texts_, {}, &Kept::last_use);
  if (oldest == texts_.end()) return false;
  texts_.erase(oldest);
  return true;
}

void KeptStates::trim(uint64_t bytes_max, bool but_the_last) {
  while (size() > (but_the_last ? 1u : 0u) && size_bytes() > bytes_max) evict();
}

int64_t KeptStates::tokens() const {
  int64_t tokens = 0;
  for (const Kept& kept : texts_) tokens += kept.state.length();
  return tokens;
}

uint64_t KeptStates::size_bytes() const {
  uint64_t bytes = 0;
  for (const Kept& kept : texts_) bytes += kept.state.size_bytes();
  return bytes;
}

bool KeptStates::has_unwritten() const {
  return std::ranges::any_of(texts_, [](const Kept& kept) { return !kept.is_written; });
}

Status KeptStates::write_next() {
  for (auto kept = texts_.rbegin(); kept != texts_.rend(); ++kept) {
    if (kept->is_written) continue;
    kept->is_written = true;
    return kept->state.keep_prefixes(kept->client);
  }
  return {};
}

}  // namespace moeflux
