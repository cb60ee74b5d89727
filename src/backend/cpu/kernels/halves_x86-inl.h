// Turns rows of f16 numbers into columns: half as many shuffles as f32 numbers take.
// Included inside the namespace of one ISA, behind its registers and before select-inl.h.

struct HalfColumns {
  static constexpr bool kAreFast = true;
  static constexpr int64_t kCount = 16;  // that are turned at once
  static constexpr int64_t kBytes = kCount * 2 * kLanes;

  /// Where column c of kLanes rows begins.
  static constexpr int64_t at(int64_t c) { return c % 8 * 4 * kLanes + c / 8 * 2 * kLanes; }
  /// Columns from byte `offset` on; `to` has kBytes, on a cache line border.
  static MF_INLINE void turn(const uint8_t* const* rows, int64_t offset, uint8_t* to) {
    Halves row[8];
    for (int i = 0; i < 8; ++i) row[i] = hload(rows, i, offset);
    Halves pairs[8];
    for (int i = 0; i < 8; i += 2) {
      pairs[i] = hlow16(row[i], row[i + 1]);
      pairs[i + 1] = hhigh16(row[i], row[i + 1]);
    }
    Halves fours[8];  // columns 2i and 2i + 1 of four rows, then of the other four
    for (int i = 0; i < 2; ++i) {
      fours[4 * i] = hlow32(pairs[4 * i], pairs[4 * i + 2]);
      fours[4 * i + 1] = hhigh32(pairs[4 * i], pairs[4 * i + 2]);
      fours[4 * i + 2] = hlow32(pairs[4 * i + 1], pairs[4 * i + 3]);
      fours[4 * i + 3] = hhigh32(pairs[4 * i + 1], pairs[4 * i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
      hstore(to + at(2 * i), hlow64(fours[i], fours[i + 4]));
      hstore(to + at(2 * i + 1), hhigh64(fours[i], fours[i + 4]));
    }
  }
};
