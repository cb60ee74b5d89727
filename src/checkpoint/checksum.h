// The checksum of packed experts: XXH3, 64 bits. Guards against bad drives and torn copies, not
// against people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace moeflux {

uint64_t checksum64(std::span<const std::byte> bytes);
inline uint64_t checksum64(std::string_view text) {
  return checksum64(std::as_bytes(std::span(text.data(), text.size())));
}

/// Sixteen lower-case hexadecimal digits.
std::string checksum_text(uint64_t checksum);
/// The inverse; nullopt for anything else.
std::optional<uint64_t> parse_checksum(std::string_view text);

}  // namespace moeflux
