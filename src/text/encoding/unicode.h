// Unicode properties and normalisation: utf8proc behind one header. Pure and thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace moeflux {

bool is_white_space(char32_t code_point);

/// A character of \w as Unicode's regular expressions define it: alphabetic, mark, decimal digit,
/// connector punctuation or join control.
bool is_word_character(char32_t code_point);

/// Canonical composition (NFC) of well-formed UTF-8. O(n log n) whatever the text, also for long
/// runs of combining marks. Fails with kResourceExhausted for texts above 2^29 bytes.
Result<std::string> normalize_nfc(std::string_view text);

/// Well-formed UTF-8 without what tells like letters apart: the compatibility decomposition (NFKD)
/// in small letters, without marks. Marks are not put in order, as none is left.
std::string fold_letters(std::string_view text);

}  // namespace moeflux
