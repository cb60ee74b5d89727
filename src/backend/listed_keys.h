// Room for the keys that one token attends to, where devices copy them to a page of their own.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace moeflux {

/// Tokens of a page for so many keys: whole tiles of every kernel.
constexpr uint64_t listed_page_tokens(uint64_t keys) { return round_up(keys, 256); }

}  // namespace moeflux
