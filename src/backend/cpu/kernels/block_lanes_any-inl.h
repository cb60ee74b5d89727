// The part of block_lanes_*-inl.h that takes no instruction of its own.

/// The halves at `from` of sixteen rows.
MF_INLINE void gather_halves(const uint8_t* from, int64_t row_bytes, float* to) {
  uint32_t bits[16];
  for (int r = 0; r < 16; ++r) bits[r] = load_u16(from + r * row_bytes);
  for (int r = 0; r < 16; ++r) to[r] = half_bits(bits[r]);
}
