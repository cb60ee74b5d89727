// Transposing and looking up for block_fill-inl.h, in portable C++.

constexpr int kWordBytes = 16;
#include "backend/cpu/kernels/block_words-inl.h"

/// The four words of 16 bytes of each row.
MF_INLINE void transpose_words(const uint8_t* from, const RowSteps& rows, Words* to) {
  for (int word = 0; word < 4; ++word) {
    to[word] = words_of([&](int row) { return load_u32(from + row * rows.one + word * 4); });
  }
}
/// The eight words of 32 bytes of each row.
MF_INLINE void transpose_octets(const uint8_t* from, const RowSteps& rows, Words* to) {
  transpose_words(from, rows, to);
  transpose_words(from + 16, rows, to + 4);
}

#include "backend/cpu/kernels/block_lanes_any-inl.h"

/// table[byte] of bytes below 16.
MF_INLINE Words look_up_bytes(Words from, const uint8_t (&table)[16]) {
  uint8_t bytes[kWordBytes];
  __builtin_memcpy(bytes, &from, kWordBytes);
  for (uint8_t& byte : bytes) byte = table[byte & 15];
  return same_bits<Words>(bytes);
}

/// All bits of byte b of a row where bit 4 * kLine + b of its word is set.
template <int kLine>
MF_INLINE Words set_columns(Words words) {
  Words mask = {};
  for (int b = 0; b < 4; ++b) mask |= (words >> (4 * kLine + b) & 1u) * (0xffu << (8 * b));
  return mask;
}

/// Adds `value` to the bytes of line kLine whose column is set: bit 4 * kLine + b of a row's word
/// is that of byte b. Bytes do not carry.
template <int kLine>
MF_INLINE Words add_where_set(Words codes, Words bits, uint8_t value) {
  return codes + (set_columns<kLine>(bits) & value * 0x01010101u);
}

/// look_up_bytes(), and 128 less that where the sign of a column is set: bit 4 * kLine + b of a
/// row's word is that of byte b.
template <int kLine>
MF_INLINE Words look_up_signed(Words from, Words signs, const uint8_t (&table)[16]) {
  const Words negative = set_columns<kLine>(signs);
  const Words codes = look_up_bytes(from, table);
  return (codes & ~negative) | ((0x80808080u - codes) & negative);
}
