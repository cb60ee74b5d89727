// Fills of the types of low_bit_codes-inl.h. Included by block_fill-inl.h.

/// A byte's four codes are a line.
template <int kCount>
struct FillQ2 {
  using Block = BlockQ2<kCount>;
  static constexpr int kCodeBits = 4;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const Floats scale = gather_halves(from, rows);
    unrolled<kCount / 64>([&](int part) MF_INLINE_BODY {
      const RowWords packed(from + 2 + 16 * part, rows);
      unrolled<16>([&](int i) MF_INLINE_BODY {
        const Words four = packed[i / 4] >> (8 * (i % 4)) & 255u;
        to.codes(16 * part + i, (four | four << 6 | four << 12 | four << 18) & kBytesOf3);
      });
      put_scale<Block::kZero>(to, part, scale);
    });
  }
};

/// Half a byte is a line; a bit is a code of 0 or 2.
struct FillQ1_0 {
  using Block = BlockQ1_0;
  static constexpr int kCodeBits = 4;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const Floats scale = gather_halves(from, rows);
    const RowWords packed(from + 2, rows);
    unrolled<2>([&](int part) MF_INLINE_BODY {
      unrolled<16>([&](int i) MF_INLINE_BODY {
        const Words four = packed[2 * part + i / 8] >> (4 * (i % 8)) & 15u;
        to.codes(16 * part + i, ((four | four << 7 | four << 14 | four << 21) & kBytesOf1) << 1);
      });
      put_scale<Block::kZero>(to, part, scale);
    });
  }
};

/// `kDigits` digits to the base of 3 of each byte, the first in line `line`, `step` lines apart.
template <int kDigits, class To>
MF_INLINE void put_digits(To& to, int line, int step, Words bytes) {
  Words even = bytes & 0x00ff00ffu;
  Words odd = bytes >> 8 & 0x00ff00ffu;
  unrolled<kDigits>([&](int n) MF_INLINE_BODY {
    even += even + even;
    odd += odd + odd;
    to.codes(line + n * step, (even >> 8 & 0x00030003u) | (odd & 0x03000300u));
    even &= 0x00ff00ffu;
    odd &= 0x00ff00ffu;
  });
}

struct FillTq1_0 {
  using Block = BlockTq1_0;
  static constexpr int kCodeBits = 4;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const RowOctet first(from, rows);
    unrolled<8>([&](int i) MF_INLINE_BODY { put_digits<5>(to, i, 8, first[i]); });
    const RowWords second(from + 32, rows);
    unrolled<4>([&](int i) MF_INLINE_BODY { put_digits<5>(to, 40 + i, 4, second[i]); });
    put_digits<4>(to, 60, 1, gather_words(from + 48, rows));
    const Floats scale = gather_halves(from + 52, rows);
    unrolled<4>([&](int g) MF_INLINE_BODY { put_scale<Block::kZero>(to, g, scale); });
  }
};

/// Like Q2_K, with one scale and no minimum.
struct FillTq2_0 {
  using Block = BlockTq2_0;
  static constexpr int kCodeBits = 4;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const Floats scale = gather_halves(from + 64, rows);
    const auto none = [](int, int) MF_INLINE_BODY { return Words{}; };
    put_two_bits(to, from, rows, none, [&](int g) MF_INLINE_BODY {
      if (g % 4 == 3) put_scale<Block::kZero>(to, g / 4, scale);
    });
  }
};
