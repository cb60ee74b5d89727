// The part of block_lanes_*-inl.h that takes no instruction of its own.

/// Halves in the low parts of words; half_bits() says how.
MF_INLINE Floats halves_to_floats(Words bits) {
  const Words magnitude = (bits & 0x7fffu) << 13;
  const Floats moved = reinterpret_cast<Floats>(magnitude) * 0x1p112f;
  Words out = reinterpret_cast<Words>(moved);
  out |= reinterpret_cast<Words>(magnitude >= 0x0f800000u) & 0x7f800000u;
  return reinterpret_cast<Floats>(out | (bits & 0x8000u) << 16);
}

/// The 32 bits, 16 bits, halves at `from` of all rows.
MF_INLINE Words gather_words(const uint8_t* from, const RowSteps& rows) {
  return words_of([&](int row) { return load_u32(from + row * rows.one); });
}
MF_INLINE Words gather_u16(const uint8_t* from, const RowSteps& rows) {
  return words_of([&](int row) { return load_u16(from + row * rows.one); });
}
MF_INLINE Floats gather_halves(const uint8_t* from, const RowSteps& rows) {
  return halves_to_floats(gather_u16(from, rows));
}

/// Four levels of 2 bits, those of byte kByte of a row's word, in a byte each.
template <int kByte>
MF_INLINE Words spread_levels(Words words) {
  return spread_pairs(words >> (8 * kByte) & 255u);
}

/// Entries of a grid for indices of 16 bits.
template <int kSize>
MF_INLINE Words look_up_entries(Words index, const uint16_t (&grid)[kSize]) {
  return look_up_one_by_one(index, grid);
}
