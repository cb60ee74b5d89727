// Fills of the types whose codes choose rows of a grid: IQ1, IQ2 and IQ3. Part of
// block_fill-inl.h. A grid's entry is sixteen bits: levels of eight columns in 2 bits each, or of
// four in 3 bits. The level of a column and its sign become four bits of a byte, and these a code
// by a table of sixteen.

/// Four fields of 2 bits to the lowest bits of four bytes.
MF_INLINE Words spread_pairs(Words bits) {
  const Words two = (bits | bits << 12) & 0x000f000fu;
  return (two | two << 6) & 0x03030303u;
}
/// Four fields of 3 bits.
MF_INLINE Words spread_threes(Words bits) {
  const Words two = (bits | bits << 10) & 0x003f003fu;
  return (two | two << 5) & 0x07070707u;
}
/// The eighth sign of four times seven bits, each in a byte: an even number of them is set.
MF_INLINE Words with_even_signs(Words sevens) {
  Words parity = sevens ^ (sevens >> 4 & 0x07070707u);
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return sevens | (parity & 0x01010101u) << 7;
}
/// The lowest 28 bits in sevens.
MF_INLINE Words signs_of_sevens(Words bits) {
  return with_even_signs((bits & 0x7fu) | (bits << 1 & 0x7f00u) | (bits << 2 & 0x7f0000u) |
                         (bits << 3 & 0x7f000000u));
}

/// Stored bytes of sixteen rows: kQuarters times four words of each.
template <int kQuarters>
struct RowBytes {
  alignas(64) uint8_t lines[kQuarters * 4 * kLineBytes];

  MF_INLINE RowBytes(const uint8_t* from, int64_t row_bytes) {
    MF_UNROLL
    for (int i = 0; i < kQuarters; ++i) {
      transpose_words(from + 16 * i, row_bytes, lines + 4 * i * kLineBytes);
    }
  }
  MF_INLINE Words at(int word, int row) const {
    return load_words(lines + word * kLineBytes + row * 4);
  }
};

/// The columns of one group of 32 of all rows: places in a grid, then its entries, in pairs of 16
/// bits; signs; a byte for each column.
template <int kPairs>
struct GridGroup {
  alignas(64) uint8_t index[kPairs * kLineBytes];
  alignas(64) uint8_t entries[kPairs * kLineBytes];
  alignas(64) uint8_t signs[kLineBytes];
  alignas(64) uint8_t levels[8 * kLineBytes];

  MF_INLINE void set_index(int pair, int row, Words words) {
    store_words(index + pair * kLineBytes + row * 4, words);
  }
  MF_INLINE Words entry(int pair, int row) const {
    return load_words(entries + pair * kLineBytes + row * 4);
  }
  MF_INLINE void set_signs(int row, Words words) { store_words(signs + row * 4, words); }
  MF_INLINE void set_levels(int line, int row, Words words) {
    store_words(levels + line * kLineBytes + row * 4, words);
  }
  template <int kSize>
  MF_INLINE void look_up(const uint16_t (&grid)[kSize]) {
    MF_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      look_up_entries(index + i * kLineBytes, grid, entries + i * kLineBytes);
    }
  }
  MF_INLINE void put_codes(const LevelCodes& table, uint8_t* lines) const {
    MF_UNROLL
    for (int i = 0; i < 8; ++i) {
      look_up_bytes(levels + i * kLineBytes, table.codes, lines + i * kLineBytes);
    }
  }
  template <int kLine = 0>
  MF_INLINE void put_signed_codes(const LevelCodes& table, uint8_t* lines) const {
    if constexpr (kLine < 8) {
      look_up_signed<kLine>(levels + kLine * kLineBytes, signs, table.codes,
                            lines + kLine * kLineBytes);
      put_signed_codes<kLine + 1>(table, lines);
    }
  }
};

// --- Eight columns an entry: pair 0 has the entries of eights 0 and 2 of a group, pair 1 of 1 and
// 3

/// The levels of all four eights.
MF_INLINE void set_eights(GridGroup<2>& group, int row) {
  MF_UNROLL
  for (int l = 0; l < 4; ++l) {
    const Words entry = group.entry(l % 2, row) >> (l / 2 * 16);
    group.set_levels(2 * l, row, spread_pairs(entry & 255u));
    group.set_levels(2 * l + 1, row, spread_pairs(entry >> 8 & 255u));
  }
}
/// Four bytes of indices as two pairs of 16 bits.
MF_INLINE void set_byte_indices(GridGroup<2>& group, int row, Words bytes) {
  group.set_index(0, row, bytes & 0x00ff00ffu);
  group.set_index(1, row, bytes >> 8 & 0x00ff00ffu);
}

/// d * (0.5 + code) / 4
MF_INLINE Floats quarter_scales(Floats d, Words code) {
  return d * ((to_floats(code) + 0.5f) * 0.25f);
}
template <int kZero>
MF_INLINE void put_scale(const FillTo& to, int group, int row, Floats scale) {
  to.put(group, row, scale, scale * static_cast<float>(-kZero));
}
/// Two scales of sixteen columns each a byte, in two words.
MF_INLINE void put_quarter_scales(const FillTo& to, const float* d, const RowWords& words,
                                  int first_word) {
  for_rows([&](int row) {
    const Floats scale = load_floats(d + row);
    MF_UNROLL
    for (int g = 0; g < 16; ++g) {
      const Words code = words.at(first_word + g / 8, row) >> (4 * (g % 8)) & 15u;
      put_scale<kGridZero>(to, g, row, quarter_scales(scale, code));
    }
  });
}

struct FillIq2Xxs {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    alignas(64) float d[kPanelRows];
    gather_halves(from, row_bytes, d);
    const RowBytes<4> words(from + 2, row_bytes);  // of each group: indices, signs and scale
    for (int g = 0; g < 8; ++g) {
      GridGroup<2> group;
      for_rows([&](int row) { set_byte_indices(group, row, words.at(2 * g, row)); });
      group.look_up(iq::kIq2XxsGrid);
      for_rows([&](int row) {
        const Words signs = words.at(2 * g + 1, row);
        group.set_signs(row, signs_of_sevens(signs));
        set_eights(group, row);
        put_scale<kGridZero>(to, g, row, quarter_scales(load_floats(d + row), signs >> 28));
      });
      group.put_signed_codes(kIq2Codes, to.lines + g * kOctet);
    }
  }
};

struct FillIq2Xs {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    alignas(64) float d[kPanelRows];
    gather_halves(from, row_bytes, d);
    put_quarter_scales(to, d, RowWords(from + 58, row_bytes), 2);
    const RowBytes<4> words(from + 2, row_bytes);
    for (int g = 0; g < 8; ++g) {
      GridGroup<2> group;
      for_rows([&](int row) {
        const Words first = words.at(2 * g, row) & 0x01ff01ffu;
        const Words second = words.at(2 * g + 1, row) & 0x01ff01ffu;
        group.set_index(0, row, (first & 0xffffu) | second << 16);
        group.set_index(1, row, first >> 16 | (second & 0xffff0000u));
      });
      group.look_up(iq::kIq2XsGrid);
      for_rows([&](int row) {
        const Words first = words.at(2 * g, row);
        const Words second = words.at(2 * g + 1, row);
        group.set_signs(row,
                        with_even_signs((first >> 9 & 0x7fu) | (first >> 17 & 0x7f00u) |
                                        (second << 7 & 0x7f0000u) | (second >> 1 & 0x7f000000u)));
        set_eights(group, row);
      });
      group.put_signed_codes(kIq2Codes, to.lines + g * kOctet);
    }
  }
};

struct FillIq2S {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    alignas(64) float d[kPanelRows];
    gather_halves(from, row_bytes, d);
    const RowWords tail(from + 66, row_bytes);  // upper bits of indices, then scales
    put_quarter_scales(to, d, tail, 2);
    const RowBytes<2> low(from + 2, row_bytes);
    const RowBytes<2> signs(from + 34, row_bytes);
    for (int g = 0; g < 8; ++g) {
      GridGroup<2> group;
      for_rows([&](int row) {
        const Words bytes = low.at(g, row);
        const Words high = tail.at(g / 4, row) >> (8 * (g % 4)) & 255u;
        group.set_index(0, row, (bytes & 0x00ff00ffu) | (high & 3u) << 8 | (high & 0x30u) << 20);
        group.set_index(1, row,
                        (bytes >> 8 & 0x00ff00ffu) | (high & 12u) << 6 | (high & 0xc0u) << 18);
      });
      group.look_up(iq::kIq2SGrid);
      for_rows([&](int row) {
        group.set_signs(row, signs.at(g, row));
        set_eights(group, row);
      });
      group.put_signed_codes(kIq2Codes, to.lines + g * kOctet);
    }
  }
};

/// Lines of eight `l` of IQ1: its sixteen bits of `down` are all set or none.
MF_INLINE void set_moved_eight(GridGroup<2>& group, int l, int row, Words down) {
  const Words entry = group.entry(l % 2, row) >> (l / 2 * 16);
  const Words moved = down & 0x08080808u;
  group.set_levels(2 * l, row, spread_pairs(entry & 255u) | moved);
  group.set_levels(2 * l + 1, row, spread_pairs(entry >> 8 & 255u) | moved);
}
/// All bits where bit `bit` is set.
MF_INLINE Words mask_of(Words words, int bit) {
  return reinterpret_cast<Words>(reinterpret_cast<Ints>(words << (31 - bit)) >> 31);
}
/// d * (2 * code + 1) / 8
MF_INLINE Floats odd_scales(Floats d, Words code) {
  return d * (to_floats(code + code + 1u) * 0.125f);
}

struct FillIq1S {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    alignas(64) float d[kPanelRows];
    gather_halves(from, row_bytes, d);
    const RowBytes<2> low(from + 2, row_bytes);
    const RowWords tail(from + 34, row_bytes);
    for (int g = 0; g < 8; ++g) {
      GridGroup<2> group;
      for_rows([&](int row) {
        const Words bytes = low.at(g, row);
        const Words high = tail.at(g / 2, row) >> (16 * (g % 2));
        group.set_index(0, row, (bytes & 0x00ff00ffu) | (high & 7u) << 8 | (high >> 6 & 7u) << 24);
        group.set_index(
            1, row, (bytes >> 8 & 0x00ff00ffu) | (high >> 3 & 7u) << 8 | (high >> 9 & 7u) << 24);
        put_scale<kIq1Zero>(to, g, row, odd_scales(load_floats(d + row), high >> 12 & 7u));
      });
      group.look_up(iq::kIq1Grid);
      for_rows([&](int row) {
        const Words down = mask_of(tail.at(g / 2, row), 16 * (g % 2) + 15);
        MF_UNROLL
        for (int l = 0; l < 4; ++l) set_moved_eight(group, l, row, down);
      });
      group.put_codes(kIq1Codes, to.lines + g * kOctet);
    }
  }
};

struct FillIq1M {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    const RowWords scales(from + 40, row_bytes);  // its last two words are the scales
    put_all_scales(scales, to);
    const RowBytes<2> low(from, row_bytes);
    const RowWords tail(from + 32, row_bytes);
    for (int g = 0; g < 8; ++g) {
      GridGroup<2> group;
      for_rows([&](int row) {
        const Words bytes = low.at(g, row);
        const Words high = tail.at(g / 2, row) >> (16 * (g % 2));
        group.set_index(0, row, (bytes & 0x00ff00ffu) | (high & 7u) << 8 | (high >> 8 & 7u) << 24);
        group.set_index(
            1, row, (bytes >> 8 & 0x00ff00ffu) | (high >> 4 & 7u) << 8 | (high >> 12 & 7u) << 24);
      });
      group.look_up(iq::kIq1Grid);
      for_rows([&](int row) {
        const Words high = tail.at(g / 2, row);
        MF_UNROLL
        for (int l = 0; l < 4; ++l) {
          set_moved_eight(group, l, row, mask_of(high, 16 * (g % 2) + 4 * l + 3));
        }
      });
      group.put_codes(kIq1Codes, to.lines + g * kOctet);
    }
  }

 private:
  static MF_INLINE void put_all_scales(const RowWords& words, const FillTo& to) {
    for_rows([&](int row) {
      const Words w[2] = {words.at(2, row), words.at(3, row)};
      const Words bits =
          (w[0] >> 12 & 15u) | (w[0] >> 28) << 4 | (w[1] >> 12 & 15u) << 8 | (w[1] >> 28) << 12;
      const Floats d = halves_to_floats(bits);
      MF_UNROLL
      for (int g = 0; g < 16; ++g) {
        const Words code = w[g / 8] >> (16 * (g / 4 % 2) + 3 * (g % 4)) & 7u;
        put_scale<kIq1Zero>(to, g, row, odd_scales(d, code));
      }
    });
  }
};

// --- Four columns an entry: pair p has the entries of line p % 2 + p / 2 * 4 and of the line two
// on

/// The levels of all lines.
MF_INLINE void set_fours(GridGroup<4>& group, int row) {
  MF_UNROLL
  for (int line = 0; line < 8; ++line) {
    const Words entry = group.entry(line / 4 * 2 + line % 2, row) >> (line % 4 / 2 * 16);
    group.set_levels(line, row, spread_threes(entry & 0xfffu));
  }
}

struct FillIq3Xxs {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    alignas(64) float d[kPanelRows];
    gather_halves(from, row_bytes, d);
    const RowBytes<4> low(from + 2, row_bytes);
    const RowBytes<2> tail(from + 66, row_bytes);
    for (int g = 0; g < 8; ++g) {
      GridGroup<4> group;
      for_rows([&](int row) {
        MF_UNROLL
        for (int half = 0; half < 2; ++half) {
          const Words bytes = low.at(2 * g + half, row);
          group.set_index(2 * half, row, bytes & 0x00ff00ffu);
          group.set_index(2 * half + 1, row, bytes >> 8 & 0x00ff00ffu);
        }
      });
      group.look_up(iq::kIq3XxsGrid);
      for_rows([&](int row) {
        const Words signs = tail.at(g, row);
        group.set_signs(row, signs_of_sevens(signs));
        set_fours(group, row);
        const Floats scale = quarter_scales(load_floats(d + row), signs >> 28);
        put_scale<kGridZero>(to, g, row, scale + scale);
      });
      group.put_signed_codes(kIq3XxsCodes, to.lines + g * kOctet);
    }
  }
};

struct FillIq3S {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    alignas(64) float d[kPanelRows];
    gather_halves(from, row_bytes, d);
    const RowBytes<4> low(from + 2, row_bytes);
    const RowWords high(from + 66, row_bytes);  // its first two words
    const RowBytes<2> signs(from + 74, row_bytes);
    const RowWords behind(from + 94, row_bytes);  // its last word is the scales
    for (int g = 0; g < 8; ++g) {
      GridGroup<4> group;
      for_rows([&](int row) {
        const Words bits = high.at(g / 4, row) >> (8 * (g % 4)) & 255u;
        MF_UNROLL
        for (int half = 0; half < 2; ++half) {
          const Words bytes = low.at(2 * g + half, row);
          const Words four = bits >> (4 * half);
          group.set_index(2 * half, row,
                          (bytes & 0x00ff00ffu) | (four & 1u) << 8 | (four & 4u) << 22);
          group.set_index(2 * half + 1, row,
                          (bytes >> 8 & 0x00ff00ffu) | (four & 2u) << 7 | (four & 8u) << 21);
        }
      });
      group.look_up(iq::kIq3SGrid);
      for_rows([&](int row) {
        group.set_signs(row, signs.at(g, row));
        set_fours(group, row);
        const Words code = behind.at(3, row) >> (4 * g) & 15u;
        put_scale<kGridZero>(to, g, row, load_floats(d + row) * to_floats(code + code + 1u));
      });
      group.put_signed_codes(kIq3SCodes, to.lines + g * kOctet);
    }
  }
};
