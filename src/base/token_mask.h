// Tokens that may be drawn, a bit each.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace moeflux {

/// 32 tokens to a word, the first in the lowest bit. Ids past the end are not allowed.
struct TokenMask {
  std::span<const uint32_t> words;

  bool allows(TokenId token) const {
    const auto id = static_cast<uint32_t>(token);
    return id / 32 < words.size() && ((words[id / 32] >> (id % 32)) & 1) != 0;
  }
};

}  // namespace moeflux
