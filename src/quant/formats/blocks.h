// Formats whose rows are blocks, one after another, that hold all parts of some neighbouring
// numbers: GGML's types. A format states what one number of a block is; the rest is common.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "quant/format_traits.h"

namespace moeflux {

/// The traits of a format of blocks. `name` outlives everything.
FormatTraits make_block_format(std::string_view name, const BlockLayout& layout);

namespace blocks {

/// Integers and halves at any address, little-endian as files are.
inline uint32_t u16_at(const uint8_t* p) { return p[0] | static_cast<uint32_t>(p[1]) << 8; }
inline uint32_t u32_at(const uint8_t* p) { return u16_at(p) | u16_at(p + 2) << 16; }
inline float f16_at(const uint8_t* p) { return to_float(F16{static_cast<uint16_t>(u16_at(p))}); }

/// 32 codes of 4 bits in 16 bytes: the low halves are the first sixteen.
inline int nibble_of_32(const uint8_t* codes, int e) {
  return e < 16 ? codes[e] & 15 : codes[e - 16] >> 4;
}

/// Sixteen codes of 4 bits, two a byte in order, as eight bytes: the low halves are the first
/// eight.
inline uint64_t halves_of_16(const uint8_t* codes) {
  uint64_t in_order;
  std::memcpy(&in_order, codes, 8);
  const auto spread = [](uint64_t eight) {
    eight = (eight | eight << 16) & 0x0000ffff0000ffffu;
    eight = (eight | eight << 8) & 0x00ff00ff00ff00ffu;
    return (eight | eight << 4) & 0x0f0f0f0f0f0f0f0fu;
  };
  return spread(in_order & 0xffffffffu) | spread(in_order >> 32) << 4;
}

}  // namespace blocks
}  // namespace moeflux
