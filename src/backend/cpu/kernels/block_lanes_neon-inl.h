// Transposing and looking up for block_fill-inl.h, in 128-bit registers of Arm.

constexpr int kWordBytes = 16;
#include "backend/cpu/kernels/block_words-inl.h"

/// The four words of 16 bytes of each row.
MF_INLINE void transpose_words(const uint8_t* from, const RowSteps& rows, Words* to) {
  const auto part = [&](int row) { return vreinterpretq_u32_u8(vld1q_u8(from + row * rows.one)); };
  const auto join = [](uint32x4_t low, uint32x4_t high, bool upper) {
    const uint64x2_t a = vreinterpretq_u64_u32(low);
    const uint64x2_t b = vreinterpretq_u64_u32(high);
    return same_bits<Words>(upper ? vzip2q_u64(a, b) : vzip1q_u64(a, b));
  };
  const uint32x4_t a = vzip1q_u32(part(0), part(1));
  const uint32x4_t b = vzip2q_u32(part(0), part(1));
  const uint32x4_t c = vzip1q_u32(part(2), part(3));
  const uint32x4_t d = vzip2q_u32(part(2), part(3));
  to[0] = join(a, c, false);
  to[1] = join(a, c, true);
  to[2] = join(b, d, false);
  to[3] = join(b, d, true);
}
/// The eight words of 32 bytes of each row.
MF_INLINE void transpose_octets(const uint8_t* from, const RowSteps& rows, Words* to) {
  transpose_words(from, rows, to);
  transpose_words(from + 16, rows, to + 4);
}

#include "backend/cpu/kernels/block_lanes_any-inl.h"

/// table[byte] of bytes below 16.
MF_INLINE Words look_up_bytes(Words from, const uint8_t (&table)[16]) {
  return same_bits<Words>(vqtbl1q_u8(vld1q_u8(table), same_bits<uint8x16_t>(from)));
}

/// All bits where bit 4 * kLine + b of the words is set, for byte b of each.
template <int kLine>
MF_INLINE uint8x16_t set_columns(Words words) {
  const uint8x16_t byte_of_lane = vaddq_u8(
      vreinterpretq_u8_u32(vmulq_n_u32(uint32x4_t{0, 1, 2, 3}, 0x04040404)), vdupq_n_u8(kLine / 2));
  const uint8x16_t bits =
      vreinterpretq_u8_u32(vdupq_n_u32(kLine % 2 == 0 ? 0x08040201u : 0x80402010u));
  return vtstq_u8(vqtbl1q_u8(same_bits<uint8x16_t>(words), byte_of_lane), bits);
}

/// Adds `value` to the bytes of line kLine whose column is set: bit 4 * kLine + b of a row's word
/// is that of byte b.
template <int kLine>
MF_INLINE Words add_where_set(Words codes, Words bits, uint8_t value) {
  const uint8x16_t more = vandq_u8(set_columns<kLine>(bits), vdupq_n_u8(value));
  return same_bits<Words>(vaddq_u8(same_bits<uint8x16_t>(codes), more));
}

/// look_up_bytes(), and 128 less that where the sign of a column is set: bit 4 * kLine + b of a
/// row's word is that of byte b.
template <int kLine>
MF_INLINE Words look_up_signed(Words from, Words signs, const uint8_t (&table)[16]) {
  const auto codes = same_bits<uint8x16_t>(look_up_bytes(from, table));
  const uint8x16_t turned = vsubq_u8(vdupq_n_u8(128), codes);
  return same_bits<Words>(vbslq_u8(set_columns<kLine>(signs), turned, codes));
}
