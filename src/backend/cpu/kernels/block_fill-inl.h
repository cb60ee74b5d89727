// Sixteen rows of blocks to lines of bytes, as tiles of 8-bit codes are: a panel for the int8
// products, filled from rows as they are stored. Line j holds columns 4j to 4j + 3 of each row in a
// 32-bit lane.
// Included inside a namespace, after block_codes-inl.h, a block_lanes_*-inl.h and
// block_words-inl.h. Stored bytes are transposed first, four bytes of a row at a time, then all
// sixteen rows are unpacked at once; types whose codes choose rows of a grid are unpacked row by
// row and transposed after that.
//
// The fill of a type is a struct with fill(from, row_bytes, to): one block of each of sixteen rows.

constexpr int kPanelRows = static_cast<int>(kTilePanelRows);
constexpr int kLineBytes = 64;
constexpr int kOctet = 8 * kLineBytes;  // lines of 32 columns

/// Where a block's columns go.
struct FillTo {
  uint8_t* lines;
  float* scales;  // [group][row], groups `stride` apart
  float* biases;
  int64_t stride;

  MF_INLINE void put(int group, int row, Floats scale, Floats bias) const {
    store_floats(scales + group * stride + row, scale);
    store_floats(biases + group * stride + row, bias);
  }
};

/// Four words of each row, as they are transposed.
struct RowWords {
  alignas(64) uint8_t lines[4 * kLineBytes];

  MF_INLINE RowWords(const uint8_t* from, int64_t row_bytes) {
    transpose_words(from, row_bytes, lines);
  }
  /// Word `word` of the rows from `row` on.
  MF_INLINE Words at(int word, int row) const {
    return load_words(lines + word * kLineBytes + row * 4);
  }
};

/// 32 bytes of each row.
MF_INLINE void transpose_octet(const uint8_t* from, int64_t row_bytes, uint8_t* lines) {
  transpose_words(from, row_bytes, lines);
  transpose_words(from + 16, row_bytes, lines + 4 * kLineBytes);
}

/// fn(at) for each vector of `bytes` bytes.
template <class Fn>
MF_INLINE void for_words(int bytes, Fn&& fn) {
  MF_UNROLL
  for (int at = 0; at < bytes; at += kWordBytes) fn(at);
}
/// fn(row) for each vector of words of sixteen rows.
template <class Fn>
MF_INLINE void for_rows(Fn&& fn) {
  MF_UNROLL
  for (int row = 0; row < kPanelRows; row += kWordLanes) fn(row);
}

/// Scales of a group whose codes of zero are kZero.
template <int kZero>
MF_INLINE void put_scales(const FillTo& to, int group, const float* scales) {
  for_rows([&](int row) {
    const Floats scale = load_floats(scales + row);
    to.put(group, row, scale, scale * static_cast<float>(-kZero));
  });
}

constexpr uint32_t kNibbles = 0x0f0f0f0fu;

// --- 32 numbers: sixteen bytes are four lines of low halves, then four of high ones ---

/// Adds 16 where the row's bit of a column is set. Bit e of a row's word belongs to column e.
template <int kLine = 0>
MF_INLINE void add_fifth_lines(const uint8_t* bits, uint8_t* lines) {
  if constexpr (kLine < 8) {
    add_where_set<kLine>(bits, 16, lines + kLine * kLineBytes);
    add_fifth_lines<kLine + 1>(bits, lines);
  }
}

MF_INLINE void fill_nibbles(const uint8_t* from, int64_t row_bytes, uint8_t* lines) {
  const RowWords packed(from, row_bytes);
  for_words(4 * kLineBytes, [&](int at) {
    const Words bytes = load_words(packed.lines + at);
    store_words(lines + at, bytes & kNibbles);
    store_words(lines + 4 * kLineBytes + at, bytes >> 4 & kNibbles);
  });
}

struct FillQ4_0 {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    fill_nibbles(from + 2, row_bytes, to.lines);
    alignas(64) float scales[kPanelRows];
    gather_halves(from, row_bytes, scales);
    put_scales<BlockQ4_0::kZero>(to, 0, scales);
  }
};

struct FillQ4_1 {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    fill_nibbles(from + 4, row_bytes, to.lines);
    const RowWords front(from, row_bytes);
    for_rows([&](int row) {
      const Words halves = front.at(0, row);
      to.put(0, row, halves_to_floats(halves & 0xffffu), halves_to_floats(halves >> 16));
    });
  }
};

struct FillQ5_0 {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    fill_nibbles(from + 6, row_bytes, to.lines);
    const RowWords front(from, row_bytes);
    alignas(64) uint8_t bits[kLineBytes];
    for_rows([&](int row) {
      const Words first = front.at(0, row);
      store_words(bits + row * 4, first >> 16 | front.at(1, row) << 16);
      const Floats scale = halves_to_floats(first & 0xffffu);
      to.put(0, row, scale, scale * static_cast<float>(-BlockQ5_0::kZero));
    });
    add_fifth_lines(bits, to.lines);
  }
};

struct FillQ5_1 {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    fill_nibbles(from + 8, row_bytes, to.lines);
    const RowWords front(from, row_bytes);
    for_rows([&](int row) {
      const Words halves = front.at(0, row);
      to.put(0, row, halves_to_floats(halves & 0xffffu), halves_to_floats(halves >> 16));
    });
    add_fifth_lines(front.lines + kLineBytes, to.lines);
  }
};

struct FillQ8_0 {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    transpose_octet(from + 2, row_bytes, to.lines);
    for_words(kOctet,
              [&](int at) { store_words(to.lines + at, load_words(to.lines + at) ^ 0x80808080u); });
    alignas(64) float scales[kPanelRows];
    gather_halves(from, row_bytes, scales);
    put_scales<BlockQ8_0::kZero>(to, 0, scales);
  }
};

/// The lines of sixteen bytes of codes that choose from a table.
MF_INLINE void look_up_lines(const uint8_t* from, int64_t row_bytes, const uint8_t (&table)[16],
                             uint8_t* lines) {
  const RowWords packed(from, row_bytes);
  for (int j = 0; j < 4; ++j) {
    look_up_line(packed.lines + j * kLineBytes, table, lines + j * kLineBytes,
                 lines + (4 + j) * kLineBytes);
  }
}

struct FillIq4Nl {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    look_up_lines(from + 2, row_bytes, kIq4Codes, to.lines);
    alignas(64) float scales[kPanelRows];
    gather_halves(from, row_bytes, scales);
    put_scales<BlockIq4Nl::kZero>(to, 0, scales);
  }
};

struct FillMxfp4 {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    look_up_lines(from + 1, row_bytes, kE2m1Codes, to.lines);
    alignas(64) float scales[kPanelRows];
    for (int r = 0; r < kPanelRows; ++r) scales[r] = BlockMxfp4::half_scale(from[r * row_bytes]);
    put_scales<BlockMxfp4::kZero>(to, 0, scales);
  }
};

/// Eight bytes are sixteen numbers: two lines of low halves, then two of high ones.
struct FillNvfp4 {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    for (int half = 0; half < 2; ++half) {
      const RowWords packed(from + 4 + 16 * half, row_bytes);
      for (int j = 0; j < 4; ++j) {
        uint8_t* line = to.lines + (8 * half + j / 2 * 4 + j % 2) * kLineBytes;
        look_up_line(packed.lines + j * kLineBytes, kE2m1Codes, line, line + 2 * kLineBytes);
      }
    }
    const RowWords front(from, row_bytes);
    for_rows([&](int row) {
      MF_UNROLL
      for (int g = 0; g < 4; ++g) {
        const Words code = front.at(0, row) >> (8 * g) & 255u;
        // As BlockNvfp4::half_scale() does it.
        const Floats half = halves_to_floats((code & 127u) << 7) * 128.0f;
        const Words is_number = reinterpret_cast<Words>(code != 0x7fu);
        const auto scale = reinterpret_cast<Floats>(reinterpret_cast<Words>(half) & is_number);
        to.put(g, row, scale, scale * static_cast<float>(-BlockNvfp4::kZero));
      }
    });
  }
};

// --- K types ---

/// Scales and minima of Q4_K and Q5_K.
MF_INLINE void fill_six_bits(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
  const RowWords words(from, row_bytes);
  for_rows([&](int row) {
    const Words halves = words.at(0, row);
    const Words a = words.at(1, row);
    const Words b = words.at(2, row);
    const Words c = words.at(3, row);
    const Floats d = halves_to_floats(halves & 0xffffu);
    const Floats d_min = -halves_to_floats(halves >> 16);
    const Words scales[2] = {a & 0x3f3f3f3fu, (c & kNibbles) | (a >> 2 & 0x30303030u)};
    const Words mins[2] = {b & 0x3f3f3f3fu, (c >> 4 & kNibbles) | (b >> 2 & 0x30303030u)};
    MF_UNROLL
    for (int g = 0; g < 8; ++g) {
      to.put(g, row, d * to_floats(scales[g / 4] >> (8 * (g % 4)) & 255u),
             d_min * to_floats(mins[g / 4] >> (8 * (g % 4)) & 255u));
    }
  });
}

/// 32 bytes are eight lines of low halves, then eight of high ones. Where kHigh is set, bit g of
/// the bytes at `high` is bit 4 of the codes of 32 columns g.
template <bool kHigh>
MF_INLINE void fill_halves(const uint8_t* from, int64_t row_bytes, const uint8_t* high,
                           uint8_t* lines) {
  MF_UNROLL
  for (int c = 0; c < 4; ++c) {
    alignas(64) uint8_t packed[kOctet];
    transpose_octet(from + 32 * c, row_bytes, packed);
    for_words(kOctet, [&](int at) {
      const Words bytes = load_words(packed + at);
      Words low = bytes & kNibbles;
      Words upper = bytes >> 4 & kNibbles;
      if constexpr (kHigh) {
        const Words bits = load_words(high + at);
        low |= (bits >> (2 * c) & 0x01010101u) << 4;
        upper |= (bits >> (2 * c + 1) & 0x01010101u) << 4;
      }
      store_words(lines + 2 * c * kOctet + at, low);
      store_words(lines + (2 * c + 1) * kOctet + at, upper);
    });
  }
}

struct FillQ4K {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    fill_six_bits(from, row_bytes, to);
    fill_halves<false>(from + 16, row_bytes, nullptr, to.lines);
  }
};

struct FillQ5K {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    fill_six_bits(from, row_bytes, to);
    alignas(64) uint8_t high[kOctet];
    transpose_octet(from + 16, row_bytes, high);
    fill_halves<true>(from + 48, row_bytes, high, to.lines);
  }
};

/// 32 bytes are four times eight lines of 2 bits. Where kHigh is set, bit g of the bytes at `high`
/// is bit 2 of the codes of 32 columns g.
template <bool kHigh>
MF_INLINE void fill_pairs(const uint8_t* from, int64_t row_bytes, const uint8_t* high,
                          uint8_t* lines) {
  MF_UNROLL
  for (int half = 0; half < 2; ++half) {
    alignas(64) uint8_t packed[kOctet];
    transpose_octet(from + 32 * half, row_bytes, packed);
    for_words(kOctet, [&](int at) {
      const Words bytes = load_words(packed + at);
      MF_UNROLL
      for (int j = 0; j < 4; ++j) {
        Words codes = bytes >> (2 * j) & 0x03030303u;
        if constexpr (kHigh) {
          codes |= (load_words(high + at) >> (4 * half + j) & 0x01010101u) << 2;
        }
        store_words(lines + (4 * half + j) * kOctet + at, codes);
      }
    });
  }
}

struct FillQ2K {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    const RowWords scales(from, row_bytes);
    const RowWords behind(from + 68, row_bytes);  // its last word is both halves
    for_rows([&](int row) {
      const Words halves = behind.at(3, row);
      const Floats d = halves_to_floats(halves & 0xffffu);
      const Floats d_min = -halves_to_floats(halves >> 16);
      MF_UNROLL
      for (int g = 0; g < 16; ++g) {
        const Words word = scales.at(g / 4, row) >> (8 * (g % 4));
        to.put(g, row, d * to_floats(word & 15u), d_min * to_floats(word >> 4 & 15u));
      }
    });
    fill_pairs<false>(from + 16, row_bytes, nullptr, to.lines);
  }
};

struct FillQ3K {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    const RowWords words(from + 94, row_bytes);  // two bytes, twelve of scales, a half
    for_rows([&](int row) {
      const Words w[4] = {words.at(0, row), words.at(1, row), words.at(2, row), words.at(3, row)};
      const Words low[2] = {w[0] >> 16 | w[1] << 16, w[1] >> 16 | w[2] << 16};
      const Words high = w[2] >> 16 | w[3] << 16;
      const Floats d = halves_to_floats(w[3] >> 16);
      MF_UNROLL
      for (int g = 0; g < 16; ++g) {
        const Words four = low[g / 4 % 2] >> (8 * (g % 4) + g / 8 * 4) & 15u;
        const Words two = high >> (8 * (g % 4) + g / 4 * 2) & 3u;
        const Floats scale = d * to_floats((four | two << 4) - 32u);
        to.put(g, row, scale, scale * static_cast<float>(-BlockQ3K::kZero));
      }
    });
    alignas(64) uint8_t high[kOctet];
    transpose_octet(from, row_bytes, high);
    fill_pairs<true>(from + 32, row_bytes, high, to.lines);
  }
};

struct FillQ6K {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    alignas(64) float d[kPanelRows];
    gather_halves(from + 208, row_bytes, d);
    const RowWords scales(from + 192, row_bytes);
    for_rows([&](int row) {
      MF_UNROLL
      for (int g = 0; g < 16; ++g) {
        const auto word = reinterpret_cast<Ints>(scales.at(g / 4, row) << (24 - 8 * (g % 4)));
        const Floats scale = load_floats(d + row) * to_floats(reinterpret_cast<Words>(word >> 24));
        to.put(g, row, scale, scale * static_cast<float>(-BlockQ6K::kZero));
      }
    });
    MF_UNROLL
    for (int half = 0; half < 2; ++half) {
      fill_half(from + 64 * half, from + 128 + 32 * half, row_bytes, to.lines + 4 * half * kOctet);
    }
  }

 private:
  static MF_INLINE void fill_half(const uint8_t* low, const uint8_t* high, int64_t row_bytes,
                                  uint8_t* lines) {
    alignas(64) uint8_t fours[2 * kOctet];
    alignas(64) uint8_t twos[kOctet];
    transpose_octet(low, row_bytes, fours);
    transpose_octet(low + 32, row_bytes, fours + kOctet);
    transpose_octet(high, row_bytes, twos);
    for_words(kOctet, [&](int at) {
      const Words two = load_words(twos + at);
      MF_UNROLL
      for (int g = 0; g < 4; ++g) {
        const Words four = load_words(fours + g % 2 * kOctet + at) >> (g / 2 * 4) & kNibbles;
        store_words(lines + g * kOctet + at, four | (two >> (2 * g) & 0x03030303u) << 4);
      }
    });
  }
};

struct FillIq4Xs {
  static MF_INLINE void fill(const uint8_t* from, int64_t row_bytes, const FillTo& to) {
    const RowWords words(from, row_bytes);
    for_rows([&](int row) {
      const Words halves = words.at(0, row);
      const Words low = words.at(1, row);
      const Floats d = halves_to_floats(halves & 0xffffu);
      MF_UNROLL
      for (int g = 0; g < 8; ++g) {
        const Words code = (low >> (4 * g) & 15u) | (halves >> (16 + 2 * g) & 3u) << 4;
        const Floats scale = d * to_floats(code - 32u);
        to.put(g, row, scale, scale * static_cast<float>(-BlockIq4Xs::kZero));
      }
    });
    for (int g = 0; g < 8; ++g) {
      look_up_lines(from + 8 + 16 * g, row_bytes, kIq4Codes, to.lines + g * kOctet);
    }
  }
};

#include "backend/cpu/kernels/affine_fill-inl.h"
#include "backend/cpu/kernels/block_grids-inl.h"

// --- The table ---

/// `blocks` blocks of each of sixteen rows.
template <class Block, class Fill>
static void fill_blocks(const BlockFillArgs& args) {
  constexpr int kGroups = Block::kElements / Block::kGroup;
  FillTo to = {args.lines, args.scales, args.biases, args.stride};
  const uint8_t* from = args.rows;
  for (int64_t b = 0; b < args.blocks; ++b, from += Block::kBytes) {
    Fill::fill(from, args.row_bytes, to);
    to.lines += Block::kElements / 4 * kLineBytes;
    to.scales += kGroups * to.stride;
    to.biases += kGroups * to.stride;
  }
}

template <class Block, class Fill>
constexpr BlockKernel block_kernel(bool narrow) {
  return {Block::kElements, Block::kBytes, Block::kGroup, narrow, fill_blocks<Block, Fill>};
}

/// By BlockKind.
constexpr BlockKernels kBlockKernels = {{
    block_kernel<BlockQ4_0, FillQ4_0>(true),
    block_kernel<BlockQ4_1, FillQ4_1>(true),
    block_kernel<BlockQ5_0, FillQ5_0>(true),
    block_kernel<BlockQ5_1, FillQ5_1>(true),
    block_kernel<BlockQ8_0, FillQ8_0>(false),
    block_kernel<BlockQ2K, FillQ2K>(true),
    block_kernel<BlockQ3K, FillQ3K>(true),
    block_kernel<BlockQ4K, FillQ4K>(true),
    block_kernel<BlockQ5K, FillQ5K>(true),
    block_kernel<BlockQ6K, FillQ6K>(true),
    block_kernel<BlockIq4Nl, FillIq4Nl>(false),
    block_kernel<BlockIq4Xs, FillIq4Xs>(false),
    block_kernel<BlockIq2Xxs, FillIq2Xxs>(true),
    block_kernel<BlockIq2Xs, FillIq2Xs>(true),
    block_kernel<BlockIq2S, FillIq2S>(true),
    block_kernel<BlockIq3Xxs, FillIq3Xxs>(true),
    block_kernel<BlockIq3S, FillIq3S>(true),
    block_kernel<BlockIq1S, FillIq1S>(true),
    block_kernel<BlockIq1M, FillIq1M>(true),
    block_kernel<BlockMxfp4, FillMxfp4>(true),
    block_kernel<BlockNvfp4, FillNvfp4>(true),
    affine_kernel<4, 32>(),
    affine_kernel<4, 64>(),
    affine_kernel<4, 128>(),
    affine_kernel<8, 32>(),
    affine_kernel<8, 64>(),
    affine_kernel<8, 128>(),
}};
