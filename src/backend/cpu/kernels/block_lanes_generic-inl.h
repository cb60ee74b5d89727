// Transposing and looking up for block_fill-inl.h, in portable C++.

constexpr int kWordBytes = 16;

/// Lines 0 to 3 at `to`: the four words of 16 bytes of each of sixteen rows.
MF_INLINE void transpose_words(const uint8_t* from, int64_t row_bytes, uint8_t* to) {
  for (int row = 0; row < 16; ++row) {
    for (int word = 0; word < 4; ++word) {
      __builtin_memcpy(to + word * 64 + row * 4, from + row * row_bytes + word * 4, 4);
    }
  }
}

#include "backend/cpu/kernels/block_lanes_any-inl.h"

/// to[i] = table[from[i] & 15] of a line, and the same of the high halves.
MF_INLINE void look_up_line(const uint8_t* from, const uint8_t (&table)[16], uint8_t* low,
                            uint8_t* high) {
  for (int i = 0; i < 64; ++i) {
    const uint8_t code = from[i];
    low[i] = table[code & 15];
    high[i] = table[code >> 4];
  }
}

/// to[i] = table[from[i]] of a line of numbers below 16.
MF_INLINE void look_up_bytes(const uint8_t* from, const uint8_t (&table)[16], uint8_t* to) {
  for (int i = 0; i < 64; ++i) to[i] = table[from[i]];
}

/// Adds `value` to the bytes of line kLine whose column is set: bit 4 * kLine + b of a row's word
/// is that of byte b.
template <int kLine>
MF_INLINE void add_where_set(const uint8_t* bits, uint8_t value, uint8_t* line) {
  for (int i = 0; i < 64; ++i) {
    const bool set = (load_u32(bits + i / 4 * 4) >> (4 * kLine + i % 4) & 1) != 0;
    line[i] = static_cast<uint8_t>(line[i] + (set ? value : 0));
  }
}

/// look_up_bytes(), and 128 less that where the sign of a column is set: bit 4 * kLine + b of a
/// row's word is that of byte b.
template <int kLine>
MF_INLINE void look_up_signed(const uint8_t* from, const uint8_t* signs, const uint8_t (&table)[16],
                              uint8_t* to) {
  for (int i = 0; i < 64; ++i) {
    const uint8_t code = table[from[i]];
    const bool negative = (load_u32(signs + i / 4 * 4) >> (4 * kLine + i % 4) & 1) != 0;
    to[i] = negative ? static_cast<uint8_t>(128 - code) : code;
  }
}

/// Entries of a grid for a line of indices of 16 bits.
template <int kSize>
MF_INLINE void look_up_entries(const uint8_t* index, const uint16_t (&grid)[kSize], uint8_t* to) {
  for (int i = 0; i < 64; i += 2) {
    const uint16_t entry = grid[load_u16(index + i) & (kSize - 1)];
    __builtin_memcpy(to + i, &entry, 2);
  }
}
