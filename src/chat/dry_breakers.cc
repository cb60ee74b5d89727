#include "chat/dry_breakers.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace moeflux {
namespace {

constexpr size_t kTailMax = 20;

Status add_breakers(TokenId token, std::string_view word, const std::string& text,
                    const Tokenizer& tokenizer, DryBreakers& breakers) {
  if (word.find(text) != std::string_view::npos) {
    breakers.add(token, {});
    return {};
  }
  for (size_t length = 1; length < std::min(text.size(), word.size() + 1); ++length) {
    if (!word.ends_with(std::string_view(text).substr(0, length))) continue;
    MF_ASSIGN_OR_RETURN(std::vector<TokenId> tail,
                        tokenizer.encode(text.substr(length), {.match_added_tokens = false}));
    tail.resize(std::min(tail.size(), kTailMax));
    breakers.add(token, std::move(tail));
  }
  return {};
}

}  // namespace

Result<DryBreakers> make_dry_breakers(std::span<const std::string> texts,
                                      const Tokenizer& tokenizer) {
  DryBreakers breakers;
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    const std::string_view word = tokenizer.token_bytes(token);
    for (const std::string& text : texts) {
      MF_RETURN_IF_ERROR(add_breakers(token, word, text, tokenizer, breakers));
    }
  }
  return breakers;
}

Result<std::shared_ptr<const DryBreakers>> DryBreakerCache::of(
    const std::vector<std::string>& texts, const Tokenizer& tokenizer) {
  if (!breakers_ || texts_ != texts) {
    MF_ASSIGN_OR_RETURN(DryBreakers made, make_dry_breakers(texts, tokenizer));
    breakers_ = std::make_shared<const DryBreakers>(std::move(made));
    texts_ = texts;
  }
  return breakers_;
}

}  // namespace moeflux
