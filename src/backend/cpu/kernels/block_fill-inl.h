// Blocks to lines of bytes, as tiles of 8-bit codes are, for the int8 products: line j of a block
// has columns 4j to 4j + 3 of each row in a 32-bit lane.
// Included inside a namespace, after a block_lanes_*-inl.h. Stored bytes are transposed first, four
// bytes of a row at a time, then kWordLanes rows are unpacked at once.
//
// The fill of a type is a struct with
//   Block    its type of block_codes-inl.h
//   kCodeBits  codes are below 2^kCodeBits, which is 4 to 8
//   kHasOuterScale, where a matrix has one
//   kLoops, where lines come eight at a time from a loop, each eight with its groups
//   fill(from, rows, to)  one block of each of kWordLanes rows, whose first is at `from`
// and `to` takes what comes:
//   to.codes(line, words)         each line once, in any order
//   to.halves(low, high, words)   two lines, of the low and the high halves of bytes
//   to.six_bits<kUpper>(line, fours, twos, j)  the low or high halves of `fours` with the two bits
//     at 4 * kUpper + 2 * j of `twos` above them; to.join_six_bits(group, 2 * kUpper + j) ends
//     these
//   to.group(group, scale, bias)  groups in order, each behind its lines

/// Four words of each row.
struct RowWords {
  Words words[4];

  MF_INLINE RowWords(const uint8_t* from, const RowSteps& rows) {
    transpose_words(from, rows, words);
  }
  MF_INLINE Words operator[](int word) const { return words[word]; }
};

/// Eight words of each row.
struct RowOctet {
  Words words[8];

  MF_INLINE RowOctet(const uint8_t* from, const RowSteps& rows) {
    transpose_octets(from, rows, words);
  }
  MF_INLINE Words operator[](int word) const { return words[word]; }
};

/// The scale of a group whose code of zero is kZero.
template <int kZero, class To>
MF_INLINE void put_scale(To& to, int group, Floats scale) {
  to.group(group, scale, scale * static_cast<float>(-kZero));
}

constexpr uint32_t kNibbles = 0x0f0f0f0fu;
constexpr uint32_t kBytesOf1 = 0x01010101u;
constexpr uint32_t kBytesOf3 = 0x03030303u;

// --- 32 numbers: sixteen bytes are four lines of low halves, then four of high ones ---

struct FillQ4_0 {
  using Block = BlockQ4_0;
  static constexpr int kCodeBits = 4;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const RowWords packed(from + 2, rows);
    unrolled<4>([&](int i) MF_INLINE_BODY { to.halves(i, 4 + i, packed[i]); });
    put_scale<Block::kZero>(to, 0, gather_halves(from, rows));
  }
};

struct FillQ4_1 {
  using Block = BlockQ4_1;
  static constexpr int kCodeBits = 4;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const RowWords packed(from + 4, rows);
    unrolled<4>([&](int i) MF_INLINE_BODY { to.halves(i, 4 + i, packed[i]); });
    const Words front = gather_words(from, rows);
    to.group(0, halves_to_floats(front & 0xffffu), halves_to_floats(front >> 16));
  }
};

/// The lines of `packed` with the fifth bits: bit e of a row's word belongs to column e.
template <int kLine = 0, class To>
MF_INLINE void put_five_bits(To& to, const RowWords& packed, Words bits) {
  if constexpr (kLine < 8) {
    const Words four = kLine < 4 ? packed[kLine] : packed[kLine % 4] >> 4;
    to.codes(kLine, add_where_set<kLine>(four & kNibbles, bits, 16));
    put_five_bits<kLine + 1>(to, packed, bits);
  }
}

struct FillQ5_0 {
  using Block = BlockQ5_0;
  static constexpr int kCodeBits = 5;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const RowWords front(from, rows);
    put_five_bits(to, RowWords(from + 6, rows), front[0] >> 16 | front[1] << 16);
    put_scale<Block::kZero>(to, 0, halves_to_floats(front[0] & 0xffffu));
  }
};

struct FillQ5_1 {
  using Block = BlockQ5_1;
  static constexpr int kCodeBits = 5;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const RowWords front(from, rows);
    put_five_bits(to, RowWords(from + 8, rows), front[1]);
    to.group(0, halves_to_floats(front[0] & 0xffffu), halves_to_floats(front[0] >> 16));
  }
};

struct FillQ8_0 {
  using Block = BlockQ8_0;
  static constexpr int kCodeBits = 8;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const RowOctet bytes(from + 2, rows);
    unrolled<8>([&](int i) MF_INLINE_BODY { to.codes(i, bytes[i] ^ 0x80808080u); });
    put_scale<Block::kZero>(to, 0, gather_halves(from, rows));
  }
};

/// Eight lines from `line` on: sixteen bytes of codes that choose from a table.
template <class To>
MF_INLINE void put_looked_up(To& to, int line, const Words* packed, const uint8_t (&table)[16]) {
  unrolled<4>([&](int i) MF_INLINE_BODY {
    to.codes(line + i, look_up_bytes(packed[i] & kNibbles, table));
    to.codes(line + 4 + i, look_up_bytes(packed[i] >> 4 & kNibbles, table));
  });
}

struct FillIq4Nl {
  using Block = BlockIq4Nl;
  static constexpr int kCodeBits = 8;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    put_looked_up(to, 0, RowWords(from + 2, rows).words, kIq4Codes);
    put_scale<Block::kZero>(to, 0, gather_halves(from, rows));
  }
};

struct FillMxfp4 {
  using Block = BlockMxfp4;
  static constexpr int kCodeBits = 5;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    put_looked_up(to, 0, RowWords(from + 1, rows).words, kE2m1Codes);
    const Words e = gather_u16(from, rows) & 255u;
    // As BlockMxfp4::half_scale() does it.
    const auto is_small = reinterpret_cast<Words>(e < 2u);
    const Words small = 0x00200000u + (e << 21);
    put_scale<Block::kZero>(
        to, 0, reinterpret_cast<Floats>((small & is_small) | ((e - 1u) << 23 & ~is_small)));
  }
};

/// Eight bytes are sixteen numbers: two lines of low halves, then two of high ones.
struct FillNvfp4 {
  using Block = BlockNvfp4;
  static constexpr bool kHasOuterScale = true;
  static constexpr int kCodeBits = 5;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const Words scales = gather_words(from, rows);
    unrolled<2>([&](int half) MF_INLINE_BODY {
      const RowWords packed(from + 4 + 16 * half, rows);
      unrolled<4>([&](int j) MF_INLINE_BODY {
        const int line = 8 * half + j / 2 * 4 + j % 2;
        to.codes(line, look_up_bytes(packed[j] & kNibbles, kE2m1Codes));
        to.codes(line + 2, look_up_bytes(packed[j] >> 4 & kNibbles, kE2m1Codes));
      });
      unrolled<2>([&](int j) MF_INLINE_BODY {
        const int group = 2 * half + j;
        put_scale<Block::kZero>(to, group, half_scales(scales >> (8 * group) & 255u));
      });
    });
  }

 private:
  /// As BlockNvfp4::half_scale() does it.
  static MF_INLINE Floats half_scales(Words code) {
    const Floats half = halves_to_floats((code & 127u) << 7) * 128.0f;
    const auto is_number = reinterpret_cast<Words>(code != 0x7fu);
    return reinterpret_cast<Floats>(reinterpret_cast<Words>(half) & is_number);
  }
};

// --- K types ---

/// Scales and minima of Q4_K and Q5_K.
struct SixBits {
  Floats d;
  Floats d_min;
  Words scales[2];
  Words mins[2];

  MF_INLINE SixBits(const uint8_t* from, const RowSteps& rows) {
    const RowWords words(from, rows);
    const Words a = words[1];
    const Words b = words[2];
    const Words c = words[3];
    d = halves_to_floats(words[0] & 0xffffu);
    d_min = -halves_to_floats(words[0] >> 16);
    scales[0] = a & 0x3f3f3f3fu;
    scales[1] = (c & kNibbles) | (a >> 2 & 0x30303030u);
    mins[0] = b & 0x3f3f3f3fu;
    mins[1] = (c >> 4 & kNibbles) | (b >> 2 & 0x30303030u);
  }
  template <class To>
  MF_INLINE void put(To& to, int group) const {
    const int shift = 8 * (group % 4);
    to.group(group, d * to_floats(scales[group / 4] >> shift & 255u),
             d_min * to_floats(mins[group / 4] >> shift & 255u));
  }
};

/// 32 bytes are eight lines of low halves, then eight of high ones.
struct FillQ4K {
  using Block = BlockQ4K;
  static constexpr int kCodeBits = 4;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const SixBits scales(from, rows);
    unrolled<4>([&](int c) MF_INLINE_BODY {
      const RowOctet packed(from + 16 + 32 * c, rows);
      unrolled<8>([&](int i) MF_INLINE_BODY { to.halves(16 * c + i, 16 * c + 8 + i, packed[i]); });
      scales.put(to, 2 * c);
      scales.put(to, 2 * c + 1);
    });
  }
};

/// Like Q4_K; bit g of 32 bytes is bit 4 of the codes of 32 columns g.
struct FillQ5K {
  using Block = BlockQ5K;
  static constexpr int kCodeBits = 5;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const SixBits scales(from, rows);
    const RowOctet high(from + 16, rows);
    unrolled<4>([&](int c) MF_INLINE_BODY {
      const RowOctet packed(from + 48 + 32 * c, rows);
      unrolled<8>([&](int i) MF_INLINE_BODY {
        const Words bits = high[i] >> (2 * c);
        to.codes(16 * c + i, (packed[i] & kNibbles) | (bits & kBytesOf1) << 4);
        to.codes(16 * c + 8 + i, (packed[i] >> 4 & kNibbles) | (bits >> 1 & kBytesOf1) << 4);
      });
      scales.put(to, 2 * c);
      scales.put(to, 2 * c + 1);
    });
  }
};

/// 64 bytes at `from` are two times four times eight lines of 2 bits. above(c, i): what comes above
/// them in line i of 32 columns c; put(g): to.group() of sixteen columns g.
template <class To, class Above, class Put>
MF_INLINE void put_two_bits(To& to, const uint8_t* from, const RowSteps& rows, const Above& above,
                            const Put& put) {
  unrolled<2>([&](int half) MF_INLINE_BODY {
    const RowOctet packed(from + 32 * half, rows);
    unrolled<4>([&](int j) MF_INLINE_BODY {
      const int c = 4 * half + j;
      unrolled<8>([&](int i) MF_INLINE_BODY {
        to.codes(8 * c + i, (packed[i] >> (2 * j) & kBytesOf3) | above(c, i));
      });
      put(2 * c);
      put(2 * c + 1);
    });
  });
}

struct FillQ2K {
  using Block = BlockQ2K;
  static constexpr int kCodeBits = 4;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const RowWords scales(from, rows);
    const Words halves = gather_words(from + 80, rows);
    const Floats d = halves_to_floats(halves & 0xffffu);
    const Floats d_min = -halves_to_floats(halves >> 16);
    const auto none = [](int, int) MF_INLINE_BODY { return Words{}; };
    put_two_bits(to, from + 16, rows, none, [&](int g) MF_INLINE_BODY {
      const Words code = scales[g / 4] >> (8 * (g % 4));
      to.group(g, d * to_floats(code & 15u), d_min * to_floats(code >> 4 & 15u));
    });
  }
};

/// Like Q2_K; bit c of 32 bytes is bit 2 of the codes of 32 columns c.
struct FillQ3K {
  using Block = BlockQ3K;
  static constexpr int kCodeBits = 4;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const RowWords w(from + 94, rows);  // two bytes, twelve of scales, a half
    const Words low[2] = {w[0] >> 16 | w[1] << 16, w[1] >> 16 | w[2] << 16};
    const Words upper = w[2] >> 16 | w[3] << 16;
    const Floats d = halves_to_floats(w[3] >> 16);
    const RowOctet high(from, rows);
    const auto third = [&](int c, int i) MF_INLINE_BODY { return (high[i] >> c & kBytesOf1) << 2; };
    put_two_bits(to, from + 32, rows, third, [&](int g) MF_INLINE_BODY {
      const Words four = low[g / 4 % 2] >> (8 * (g % 4) + g / 8 * 4) & 15u;
      const Words two = upper >> (8 * (g % 4) + g / 4 * 2) & 3u;
      put_scale<Block::kZero>(to, g, d * to_floats((four | two << 4) - 32u));
    });
  }
};

/// Two halves of 128 columns: 64 bytes of four bits, 32 of two bits for columns 32 apart.
struct FillQ6K {
  using Block = BlockQ6K;
  static constexpr int kCodeBits = 6;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const Floats d = gather_halves(from + 208, rows);
    const RowWords scales(from + 192, rows);
    const auto put = [&](int g) MF_INLINE_BODY {
      const auto word = reinterpret_cast<Ints>(scales[g / 4] << (24 - 8 * (g % 4)));
      put_scale<Block::kZero>(to, g, d * to_floats(reinterpret_cast<Words>(word >> 24)));
    };
    unrolled<2>([&](int half) MF_INLINE_BODY {
      const RowOctet twos(from + 128 + 32 * half, rows);
      unrolled<2>([&](int j) MF_INLINE_BODY {
        const RowOctet fours(from + 64 * half + 32 * j, rows);
        unrolled<8>([&](int i) MF_INLINE_BODY {
          to.template six_bits<0>(32 * half + 8 * j + i, fours[i], twos[i], j);
          to.template six_bits<1>(32 * half + 16 + 8 * j + i, fours[i], twos[i], j);
        });
        unrolled<2>([&](int k) MF_INLINE_BODY {
          const int g = 8 * half + 2 * j + k;
          to.join_six_bits(g, j);
          to.join_six_bits(g + 4, 2 + j);
          put(g);
        });
      });
      unrolled<4>([&](int k) MF_INLINE_BODY { put(8 * half + 4 + k); });
    });
  }
};

struct FillIq4Xs {
  using Block = BlockIq4Xs;
  static constexpr int kCodeBits = 8;
  template <class To>
  static MF_INLINE void fill(const uint8_t* from, const RowSteps& rows, To& to) {
    const Words halves = gather_words(from, rows);
    const Words low = gather_words(from + 4, rows);
    const Floats d = halves_to_floats(halves & 0xffffu);
    unrolled<4>([&](int pair) MF_INLINE_BODY {
      const RowOctet packed(from + 8 + 32 * pair, rows);
      unrolled<2>([&](int k) MF_INLINE_BODY {
        const int g = 2 * pair + k;
        put_looked_up(to, 8 * g, packed.words + 4 * k, kIq4Codes);
        const Words code = (low >> (4 * g) & 15u) | (halves >> (16 + 2 * g) & 3u) << 4;
        put_scale<Block::kZero>(to, g, d * to_floats(code - 32u));
      });
    });
  }
};

#include "backend/cpu/kernels/block_grids-inl.h"
#include "backend/cpu/kernels/low_bit_fill-inl.h"
