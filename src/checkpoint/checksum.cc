#include "checkpoint/checksum.h"

#include "base/format.h"

// In the header-only form there is nothing to find at run time.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace moeflux {

uint64_t checksum64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string checksum_text(uint64_t checksum) { return formatted("{:016x}", checksum); }

std::optional<uint64_t> parse_checksum(std::string_view text) {
  if (text.size() != 16) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

}  // namespace moeflux
