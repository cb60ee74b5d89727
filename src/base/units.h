// Byte counts as people write them: "64MiB", "1.5GB", "4096".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace moeflux {

constexpr uint64_t kKiB = uint64_t{1} << 10;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

constexpr uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Parses a size: digits, an optional fraction and one of B, K, KB, KiB, M, MB, MiB, G, GB, GiB, T,
/// TB, TiB (case does not matter). As in llama.cpp, K, M and G alone are powers of 1024; KB, MB and
/// GB are powers of 1000.
Result<uint64_t> parse_bytes(std::string_view text);

/// "1.50 GiB", "64.0 MiB", "512 B".
std::string format_bytes(uint64_t bytes);

}  // namespace moeflux
