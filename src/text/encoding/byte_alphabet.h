// The GPT-2 byte alphabet: each byte as a printable character, in which vocabularies are spelled.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moeflux {

/// The bytes that a spelling stands for ("Ġt" -> " t"), or nothing when some character is not of
/// the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

/// The spelling of bytes, one character a byte.
std::string spelling_of_bytes(std::string_view bytes);

}  // namespace moeflux
