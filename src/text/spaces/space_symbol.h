// U+2581, which stands for a space in vocabularies of text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/bpe/character_bpe.h"
#include "text/regex/pretokenizer.h"

namespace moeflux {

/// The symbol of a space in tokens.
constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581

/// The text with spaces in place of symbols, and the other way round.
std::string with_spaces(std::string_view text);
std::string with_symbols(std::string_view text);

/// Cuts that no merge crosses: before a space when no token has one behind another character. Then
/// pieces are short and most are met again. Else there is one piece.
Result<PreTokenizer> cuts_before_spaces(const std::vector<CharacterBpe::Symbol>& symbols);

}  // namespace moeflux
