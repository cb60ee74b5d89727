// Base64 (RFC 4648, section 4) to bytes and back.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace moeflux {

/// Strict: nothing unless `text` is what an encoder writes, with its padding, without white space
/// and with zeros in the unused bits of the last character.
std::optional<std::string> decode_base64(std::string_view text);
/// With padding, without line ends.
std::string encode_base64(std::string_view bytes);

}  // namespace moeflux
