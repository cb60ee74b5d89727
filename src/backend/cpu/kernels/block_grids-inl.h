// Fills of the types whose codes choose rows of a grid: IQ1, IQ2 and IQ3. Part of
// block_fill-inl.h. A grid's entry is sixteen bits: levels of eight columns in 2 bits each, or of
// four in 3 bits. The level of a column and its sign become four bits of a byte, and these a code
// by a table of sixteen. 32 columns are long code: fills loop over them.

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
  return sevens | (parity & kBytesOf1) << 7;
}
/// The lowest 28 bits in sevens.
MF_INLINE Words signs_of_sevens(Words bits) {
  return with_even_signs((bits & 0x7fu) | (bits << 1 & 0x7f00u) | (bits << 2 & 0x7f0000u) |
                         (bits << 3 & 0x7f000000u));
}

/// The lines of 32 columns and their signs.
template <int kLine = 0, class To>
MF_INLINE void put_signed_lines(To& to, int line, const Words* levels, Words signs,
                                const LevelCodes& table) {
  if constexpr (kLine < 8) {
    to.codes(line + kLine, look_up_signed<kLine>(levels[kLine], signs, table.codes));
    put_signed_lines<kLine + 1>(to, line, levels, signs, table);
  }
}

// --- Eight columns an entry. Places in a grid and entries come in pairs of 16 bits: pair 0 has
// those of eights 0 and 2 of 32 columns, pair 1 of 1 and 3.

struct EntryPairs {
  Words pairs[2];

  /// Four bytes of indices, and more bits of them, as pairs.
  static MF_INLINE EntryPairs of_bytes(Words bytes) {
    return {{bytes & 0x00ff00ffu, bytes >> 8 & 0x00ff00ffu}};
  }
  template <int kSize>
  MF_INLINE EntryPairs entries(const uint16_t (&grid)[kSize]) const {
    return {{look_up_entries(pairs[0], grid), look_up_entries(pairs[1], grid)}};
  }
  /// The levels of all eight lines.
  MF_INLINE void levels(Words* to) const {
    MF_UNROLL
    for (int l = 0; l < 4; ++l) {
      const Words entry = pairs[l % 2] >> (l / 2 * 16);
      to[2 * l] = spread_pairs(entry & 255u);
      to[2 * l + 1] = spread_pairs(entry >> 8 & 255u);
    }
  }
};

template <class To>
MF_INLINE void put_signed_eights(To& to, int line, const EntryPairs& entries, Words signs) {
  const auto& [even, odd] = entries.pairs;
  const Words levels[8] = {spread_levels<0>(even), spread_levels<1>(even), spread_levels<0>(odd),
                           spread_levels<1>(odd),  spread_levels<2>(even), spread_levels<3>(even),
                           spread_levels<2>(odd),  spread_levels<3>(odd)};
  put_signed_lines(to, line, levels, signs, kIq2Codes);
}

MF_INLINE Floats quarter_scales(Floats d, Words code) {
  return d * ((to_floats(code) + 0.5f) * 0.25f);
}
/// The two groups of 32 columns g, two scales a byte in two words.
template <class To>
MF_INLINE void put_quarter_scales(To& to, int g, Floats d, Words word) {
  unrolled<2>([&](int k) MF_INLINE_BODY {
    const Words code = word >> (8 * (g % 4) + 4 * k) & 15u;
    put_scale<kGridZero>(to, 2 * g + k, quarter_scales(d, code));
  });
}

struct FillIq2Xxs {
  using Block = BlockIq2Xxs;
  static constexpr int kCodeBits = 7;
  static constexpr bool kLoops = true;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const Floats d = gather_halves(from, rows);
    looped<4>([&](int two) MF_INLINE_BODY {
      const RowWords words(from + 2 + 16 * two, rows);  // of each: indices, signs and scale
      looped<2>([&](int k) MF_INLINE_BODY {
        const int g = 2 * two + k;
        const EntryPairs places = EntryPairs::of_bytes(words[2 * k]);
        const Words signs = words[2 * k + 1];
        put_signed_eights(to, 8 * g, places.entries(iq::kIq2XxsGrid), signs_of_sevens(signs));
        put_scale<kGridZero>(to, g, quarter_scales(d, signs >> 28));
      });
    });
  }
};

struct FillIq2Xs {
  using Block = BlockIq2Xs;
  static constexpr int kCodeBits = 7;
  static constexpr bool kLoops = true;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const Floats d = gather_halves(from, rows);
    const RowWords tail(from + 58, rows);  // its last two words are the scales
    looped<4>([&](int two) MF_INLINE_BODY {
      const RowWords words(from + 2 + 16 * two, rows);
      looped<2>([&](int k) MF_INLINE_BODY {
        const int g = 2 * two + k;
        const Words first = words[2 * k];
        const Words second = words[2 * k + 1];
        const EntryPairs places = {{(first & 0x1ffu) | (second << 16 & 0x01ff0000u),
                                    (first >> 16 & 0x1ffu) | (second & 0x01ff0000u)}};
        const Words signs =
            with_even_signs((first >> 9 & 0x7fu) | (first >> 17 & 0x7f00u) |
                            (second << 7 & 0x7f0000u) | (second >> 1 & 0x7f000000u));
        put_signed_eights(to, 8 * g, places.entries(iq::kIq2XsGrid), signs);
        put_quarter_scales(to, g, d, tail[2 + g / 4]);
      });
    });
  }
};

struct FillIq2S {
  using Block = BlockIq2S;
  static constexpr int kCodeBits = 7;
  static constexpr bool kLoops = true;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const Floats d = gather_halves(from, rows);
    const RowWords tail(from + 66, rows);  // upper bits of indices, then scales
    looped<2>([&](int half) MF_INLINE_BODY {
      const RowWords low(from + 2 + 16 * half, rows);
      const RowWords signs(from + 34 + 16 * half, rows);
      looped<4>([&](int k) MF_INLINE_BODY {
        const int g = 4 * half + k;
        const Words high = tail[half] >> (8 * k) & 255u;
        EntryPairs places = EntryPairs::of_bytes(low[k]);
        places.pairs[0] |= (high & 3u) << 8 | (high & 0x30u) << 20;
        places.pairs[1] |= (high & 12u) << 6 | (high & 0xc0u) << 18;
        put_signed_eights(to, 8 * g, places.entries(iq::kIq2SGrid), signs[k]);
        put_quarter_scales(to, g, d, tail[2 + half]);
      });
    });
  }
};

/// All bits where bit `bit` is set.
MF_INLINE Words mask_of(Words words, int bit) {
  return reinterpret_cast<Words>(reinterpret_cast<Ints>(words << (31 - bit)) >> 31);
}
MF_INLINE Floats odd_scales(Floats d, Words code) {
  return d * (to_floats(code + code + 1u) * 0.125f);
}
/// The lines of IQ1: down[l] are all bits of eight columns l or none.
template <class To>
MF_INLINE void put_moved_eights(To& to, int line, const EntryPairs& entries, const Words* down) {
  Words levels[8];
  entries.levels(levels);
  unrolled<8>([&](int i) MF_INLINE_BODY {
    to.codes(line + i, look_up_bytes(levels[i] | (down[i / 2] & 0x08080808u), kIq1Codes.codes));
  });
}

struct FillIq1S {
  using Block = BlockIq1S;
  static constexpr int kCodeBits = 5;
  static constexpr bool kLoops = true;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const Floats d = gather_halves(from, rows);
    const RowWords tail(from + 34, rows);
    looped<2>([&](int half) MF_INLINE_BODY {
      const RowWords low(from + 2 + 16 * half, rows);
      looped<4>([&](int k) MF_INLINE_BODY {
        const int g = 4 * half + k;
        const Words high = tail[g / 2] >> (16 * (g % 2));
        EntryPairs places = EntryPairs::of_bytes(low[k]);
        places.pairs[0] |= (high & 7u) << 8 | (high >> 6 & 7u) << 24;
        places.pairs[1] |= (high >> 3 & 7u) << 8 | (high >> 9 & 7u) << 24;
        const Words all = mask_of(high, 15);
        const Words down[4] = {all, all, all, all};
        put_moved_eights(to, 8 * g, places.entries(iq::kIq1Grid), down);
        put_scale<kIq1Zero>(to, g, odd_scales(d, high >> 12 & 7u));
      });
    });
  }
};

struct FillIq1M {
  using Block = BlockIq1M;
  static constexpr int kCodeBits = 5;
  static constexpr bool kLoops = true;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const RowWords scales(from + 40, rows);  // its last two words are the scales
    const Words w[2] = {scales[2], scales[3]};
    const Floats d = halves_to_floats((w[0] >> 12 & 15u) | (w[0] >> 28) << 4 |
                                      (w[1] >> 12 & 15u) << 8 | (w[1] >> 28) << 12);
    const RowWords tail(from + 32, rows);
    looped<2>([&](int half) MF_INLINE_BODY {
      const RowWords low(from + 16 * half, rows);
      looped<4>([&](int k) MF_INLINE_BODY {
        const int g = 4 * half + k;
        const Words high = tail[g / 2] >> (16 * (g % 2));
        EntryPairs places = EntryPairs::of_bytes(low[k]);
        places.pairs[0] |= (high & 7u) << 8 | (high >> 8 & 7u) << 24;
        places.pairs[1] |= (high >> 4 & 7u) << 8 | (high >> 12 & 7u) << 24;
        const Words down[4] = {mask_of(high, 3), mask_of(high, 7), mask_of(high, 11),
                               mask_of(high, 15)};
        put_moved_eights(to, 8 * g, places.entries(iq::kIq1Grid), down);
        unrolled<2>([&](int i) MF_INLINE_BODY {
          const int group = 2 * g + i;
          const Words code = w[group / 8] >> (16 * (group / 4 % 2) + 3 * (group % 4)) & 7u;
          put_scale<kIq1Zero>(to, group, odd_scales(d, code));
        });
      });
    });
  }
};

// --- Four columns an entry: pair p has the entries of line p % 2 + p / 2 * 4 and of the line two
// on

template <class To, int kSize>
MF_INLINE void put_signed_fours(To& to, int line, const Words* places, Words signs,
                                const uint16_t (&grid)[kSize], const LevelCodes& table) {
  Words entries[4];
  MF_UNROLL
  for (int p = 0; p < 4; ++p) entries[p] = look_up_entries(places[p], grid);
  Words levels[8];
  MF_UNROLL
  for (int i = 0; i < 8; ++i) {
    levels[i] = spread_threes(entries[i / 4 * 2 + i % 2] >> (i % 4 / 2 * 16) & 0xfffu);
  }
  put_signed_lines(to, line, levels, signs, table);
}

struct FillIq3Xxs {
  using Block = BlockIq3Xxs;
  static constexpr int kCodeBits = 7;
  static constexpr bool kLoops = true;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const Floats d = gather_halves(from, rows);
    const RowOctet tail(from + 66, rows);
    looped<4>([&](int two) MF_INLINE_BODY {
      const RowWords low(from + 2 + 16 * two, rows);
      looped<2>([&](int k) MF_INLINE_BODY {
        const int g = 2 * two + k;
        const EntryPairs first = EntryPairs::of_bytes(low[2 * k]);
        const EntryPairs second = EntryPairs::of_bytes(low[2 * k + 1]);
        const Words places[4] = {first.pairs[0], first.pairs[1], second.pairs[0], second.pairs[1]};
        const Words signs = tail[g];
        put_signed_fours(to, 8 * g, places, signs_of_sevens(signs), iq::kIq3XxsGrid, kIq3XxsCodes);
        const Floats scale = quarter_scales(d, signs >> 28);
        put_scale<kGridZero>(to, g, scale + scale);
      });
    });
  }
};

struct FillIq3S {
  using Block = BlockIq3S;
  static constexpr int kCodeBits = 7;
  static constexpr bool kLoops = true;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const Floats d = gather_halves(from, rows);
    const RowWords high(from + 66, rows);  // its first two words
    const RowOctet signs(from + 74, rows);
    const Words scales = gather_words(from + 106, rows);
    looped<4>([&](int two) MF_INLINE_BODY {
      const RowWords low(from + 2 + 16 * two, rows);
      looped<2>([&](int k) MF_INLINE_BODY {
        const int g = 2 * two + k;
        const Words bits = high[g / 4] >> (8 * (g % 4));
        Words places[4];
        MF_UNROLL
        for (int half = 0; half < 2; ++half) {
          const EntryPairs bytes = EntryPairs::of_bytes(low[2 * k + half]);
          const Words four = bits >> (4 * half);
          places[2 * half] = bytes.pairs[0] | (four & 1u) << 8 | (four & 4u) << 22;
          places[2 * half + 1] = bytes.pairs[1] | (four & 2u) << 7 | (four & 8u) << 21;
        }
        put_signed_fours(to, 8 * g, places, signs[g], iq::kIq3SGrid, kIq3SCodes);
        const Words code = scales >> (4 * g) & 15u;
        put_scale<kGridZero>(to, g, d * to_floats(code + code + 1u));
      });
    });
  }
};
