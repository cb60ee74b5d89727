// The part of block_lanes_*-inl.h that x86-64 has in common.

/// Four halves, one of each of four rows.
MF_INLINE int64_t four_halves(const uint8_t* from, int64_t row_bytes) {
  uint64_t four = 0;
  MF_UNROLL
  for (int r = 0; r < 4; ++r) {
    four |= static_cast<uint64_t>(load_u16(from + r * row_bytes)) << (16 * r);
  }
  return static_cast<int64_t>(four);
}
