// Transposing and looking up for block_fill-inl.h, in 128-bit registers of Arm.

constexpr int kWordBytes = 16;

/// Lines 0 to 3 at `to`: the four words of 16 bytes of each of sixteen rows.
MF_INLINE void transpose_words(const uint8_t* from, int64_t row_bytes, uint8_t* to) {
  MF_UNROLL
  for (int k = 0; k < 16; k += 4) {
    const auto part = [&](int row) {
      return vreinterpretq_u32_u8(vld1q_u8(from + (k + row) * row_bytes));
    };
    const auto store = [&](int line, uint32x4_t low, uint32x4_t high, bool upper) {
      const uint64x2_t a = vreinterpretq_u64_u32(low);
      const uint64x2_t b = vreinterpretq_u64_u32(high);
      vst1q_u8(to + line * 64 + k * 4,
               vreinterpretq_u8_u64(upper ? vzip2q_u64(a, b) : vzip1q_u64(a, b)));
    };
    const uint32x4_t a = vzip1q_u32(part(0), part(1));
    const uint32x4_t b = vzip2q_u32(part(0), part(1));
    const uint32x4_t c = vzip1q_u32(part(2), part(3));
    const uint32x4_t d = vzip2q_u32(part(2), part(3));
    store(0, a, c, false);
    store(1, a, c, true);
    store(2, b, d, false);
    store(3, b, d, true);
  }
}

#include "backend/cpu/kernels/block_lanes_any-inl.h"

/// to[i] = table[from[i] & 15] of a line, and the same of the high halves.
MF_INLINE void look_up_line(const uint8_t* from, const uint8_t (&table)[16], uint8_t* low,
                            uint8_t* high) {
  const uint8x16_t numbers = vld1q_u8(table);
  MF_UNROLL
  for (int i = 0; i < 64; i += 16) {
    const uint8x16_t codes = vld1q_u8(from + i);
    vst1q_u8(low + i, vqtbl1q_u8(numbers, vandq_u8(codes, vdupq_n_u8(15))));
    vst1q_u8(high + i, vqtbl1q_u8(numbers, vshrq_n_u8(codes, 4)));
  }
}

/// to[i] = table[from[i]] of a line of numbers below 16.
MF_INLINE void look_up_bytes(const uint8_t* from, const uint8_t (&table)[16], uint8_t* to) {
  const uint8x16_t numbers = vld1q_u8(table);
  MF_UNROLL
  for (int i = 0; i < 64; i += 16) vst1q_u8(to + i, vqtbl1q_u8(numbers, vld1q_u8(from + i)));
}

/// All bits where bit 4 * kLine + b of the words is set, for byte b of each.
template <int kLine>
MF_INLINE uint8x16_t set_columns(uint8x16_t words) {
  const uint8x16_t byte_of_lane = vaddq_u8(
      vreinterpretq_u8_u32(vmulq_n_u32(uint32x4_t{0, 1, 2, 3}, 0x04040404)), vdupq_n_u8(kLine / 2));
  const uint8x16_t bits =
      vreinterpretq_u8_u32(vdupq_n_u32(kLine % 2 == 0 ? 0x08040201u : 0x80402010u));
  return vtstq_u8(vqtbl1q_u8(words, byte_of_lane), bits);
}

/// Adds `value` to the bytes of line kLine whose column is set: bit 4 * kLine + b of a row's word
/// is that of byte b.
template <int kLine>
MF_INLINE void add_where_set(const uint8_t* bits, uint8_t value, uint8_t* line) {
  MF_UNROLL
  for (int i = 0; i < 64; i += 16) {
    const uint8x16_t more = vandq_u8(set_columns<kLine>(vld1q_u8(bits + i)), vdupq_n_u8(value));
    vst1q_u8(line + i, vaddq_u8(vld1q_u8(line + i), more));
  }
}

/// look_up_bytes(), and 128 less that where the sign of a column is set: bit 4 * kLine + b of a
/// row's word is that of byte b.
template <int kLine>
MF_INLINE void look_up_signed(const uint8_t* from, const uint8_t* signs, const uint8_t (&table)[16],
                              uint8_t* to) {
  const uint8x16_t numbers = vld1q_u8(table);
  MF_UNROLL
  for (int i = 0; i < 64; i += 16) {
    const uint8x16_t codes = vqtbl1q_u8(numbers, vld1q_u8(from + i));
    const uint8x16_t negative = set_columns<kLine>(vld1q_u8(signs + i));
    vst1q_u8(to + i, vbslq_u8(negative, vsubq_u8(vdupq_n_u8(128), codes), codes));
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
