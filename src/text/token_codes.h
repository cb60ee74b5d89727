// Numbers that tokens share whose texts differ in case, accents or white space alone: n-grams may
// be hashed by them.
#pragma once

#include <cstdint>
#include <vector>

#include "text/tokenizer.h"

namespace moeflux {

/// The code of each token. Codes count from 0 in the order of ids. A token that is a part of a
/// character has that of its spelling in the byte alphabet. One of spaces, tabs and ends of lines
/// alone has that of a space; one of other white space alone has one of its own.
std::vector<int32_t> token_codes(const Tokenizer& tokenizer);

}  // namespace moeflux
