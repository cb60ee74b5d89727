// Texts with a gap that the model fills in: what models trained for it read.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/tokenizer.h"

namespace moeflux::serve {

/// The tokens before the text that comes before the gap, before the text behind it, and where the
/// model begins.
struct FillInTokens {
  TokenId before = 0;
  TokenId behind = 0;
  TokenId gap = 0;
};

/// Nothing where the vocabulary has none: such a model was not trained to fill gaps.
std::optional<FillInTokens> find_fill_in_tokens(const Tokenizer& tokenizer);

/// Fails as Tokenizer::encode() does.
Result<std::vector<TokenId>> fill_in_prompt(const Tokenizer& tokenizer, const FillInTokens& tokens,
                                            std::string_view before, std::string_view behind);

}  // namespace moeflux::serve
