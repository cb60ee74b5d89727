// 16 rows of a quantised matrix times a split of one row of activations, on matrix units: what a
// SIMD group of the products of single tokens does at a time.
#pragma once

#include "backend/gpu/kernels/matmul/mma_params.h"
#include "backend/gpu/kernels/matmul/mma_product.h"

namespace moeflux {
namespace gpu {
namespace kernels {

/// Where the parts of a group's shared memory begin, in words.
struct MmaOneShared {
  u32 integers;   // of the splits of a row of activations
  u32 sums;       // of a block's integers, and its factor; in order, those of kGgmlSumWords
  u32 zeros;      // kMmaZeroWords
  u32 parts;      // of each split of a tile the sums of its 16 rows
  bool in_order;  // columns of octets, as GGML's types have them

  /// The 256s or the ones of a block, or zeros: as lane 4 g + own multiplies them.
  MF_FN_MEMBER u32 bytes_of(u32 g, u32 own, u32 block) const {
    if (g / 2u != own) return zeros;
    return integers + block * kMmaBlockWords + (g & 1u) * (kMmaBlockWords / 2u);
  }
};

/// Where they are for so many splits.
MF_FN MmaOneShared mma_one_shared(MmaWalk walk, u32 splits) {
  MmaOneShared s;
  s.in_order = walk.in_order != 0u;
  s.integers = walk.integers;
  s.sums = s.integers + splits * (kMmaSplitBlocks * kMmaBlockWords);
  s.zeros = s.sums + splits * (kMmaSplitBlocks * (s.in_order ? u32{kGgmlSumWords} : 2u));
  s.parts = s.zeros + kMmaZeroWords;
  return s;
}

/// Two octets of columns as codes: even columns, and odd ones times kOdd.
template <u32 BITS>
struct MmaColumns;
template <>
struct MmaColumns<4u> {
  enum : u32 { kOdd = 16u };
  static MF_FN_MEMBER W2 even(MF_LOCAL(const u32) words, u32 o) {
    const W2 codes = {{words[o] & 0x0f0f0f0fu, words[o + 1u] & 0x0f0f0f0fu}};
    return codes;
  }
  static MF_FN_MEMBER W2 odd(MF_LOCAL(const u32) words, u32 o) {
    const W2 codes = {{words[o] & 0xf0f0f0f0u, words[o + 1u] & 0xf0f0f0f0u}};
    return codes;
  }
};
template <>
struct MmaColumns<8u> {
  enum : u32 { kOdd = 1u };
  static MF_FN_MEMBER W2 even(MF_LOCAL(const u32) words, u32 o) {
    const W2 codes = {{even_bytes(words[2u * o], words[2u * o + 1u]),
                       even_bytes(words[2u * o + 2u], words[2u * o + 3u])}};
    return codes;
  }
  static MF_FN_MEMBER W2 odd(MF_LOCAL(const u32) words, u32 o) {
    const W2 codes = {{odd_bytes(words[2u * o], words[2u * o + 1u]),
                       odd_bytes(words[2u * o + 2u], words[2u * o + 3u])}};
    return codes;
  }
};

/// A lane's products of rows g and g + 8, of two blocks each.
struct MmaProducts {
  f32 v[2][2];
};
/// Adds up what the four lanes of a row have, whose blocks' activations have these factors. Leaves
/// 16 sums in `to`.
MF_FN void store_mma_rows(MF_T t, MmaProducts parts, f32 first_factor, f32 last_factor,
                          MF_SHARED(f32) to) {
  const u32 g = t.lane / 4u;
  const u32 own = t.lane & 3u;
  f32 totals[2] = {0.0f, 0.0f};
  // Blocks are added in order, so that each lane continues what the one before it has.
  MF_UNROLL
  for (u32 step = 0u; step < 4u; ++step) {
    MF_UNROLL
    for (u32 r = 0u; r < 2u; ++r) {
      if (step > 0u) {
        const f32 before = simd_shuffle(t, totals[r], t.lane == 0u ? 0u : t.lane - 1u);
        totals[r] = own == 0u ? 0.0f : before;
      }
      totals[r] =
          mf_fma(last_factor, parts.v[r][1], mf_fma(first_factor, parts.v[r][0], totals[r]));
    }
  }
  if (own == 3u) {
    to[g] = totals[0];
    to[g + kMmaHalfRows] = totals[1];
  }
}

/// Tiles of 16 rows, or of 8 rows of each of two matrices, whose splits a SIMD group brings to
/// shared memory and multiplies. Copies bring codes, scales and biases in whole lines and without a
/// register. Where columns end, others' codes meet activations of zero.
template <u32 BITS, bool IS_GGML = BITS == kMmaGgml || BITS >= kFormatGgml>
struct MmaPart;
template <u32 BITS>
struct MmaPart<BITS, false> {
  enum : u32 {
    kIsGgml = 0,
    kRowWords = BITS * kMmaBitWords,             // from one row to the next
    kScales = BITS * (kMmaRows * kMmaBitWords),  // where scales and biases begin
    kWords = kScales + kMmaRows * kMmaScaleWords,
    kOwn = kMmaSplit / 128u * BITS,  // lanes that bring a row, 16 bytes each
    kHalf = kMmaRows / 2u,
    kOctets = 16u / BITS,                // in 16 bytes of codes
    kPieces = kMmaBlock / 8u / kOctets,  // of 16 bytes in a block
  };
  MmaMatrix m;
  u32 cols;
  u32 step;                    // rows from a tile to the next: 16 or 8
  MF_GLOBAL(const u8) upper;   // codes of the first 8 rows of tiles
  MF_GLOBAL(const u8) lower;   // and of the others
  MF_GLOBAL(const u8) scales;  // or biases: the lane's

  /// Tiles of 16 rows.
  static MF_FN_MEMBER MmaPart of_matrix(MF_T t, MmaMatrix m, u32 cols, MF_GLOBAL(const u8) data,
                                        MF_GLOBAL(const u8) scales, MF_GLOBAL(const u8) biases) {
    const MmaPart part = {m, cols, kMmaRows, data, data, (t.lane & 1u) == 0u ? scales : biases};
    return part;
  }
  /// Tiles of 8 rows above 8 others, each `step` rows behind the one before, by their addresses.
  static MF_FN_MEMBER MmaPart of_halves(MF_T t, MmaMatrix m, u32 cols, u32 step, u64 upper,
                                        u64 lower, u64 own_scales) {
    const MmaPart part = {m,
                          cols,
                          step,
                          MF_AT(t, const u8, upper),
                          MF_AT(t, const u8, lower),
                          MF_AT(t, const u8, own_scales)};
    return part;
  }
  /// The same of other rows.
  MF_FN_MEMBER void move(MF_T t, u64 upper_at, u64 lower_at, u64 own_scales) {
    upper = MF_AT(t, const u8, upper_at);
    lower = MF_AT(t, const u8, lower_at);
    scales = MF_AT(t, const u8, own_scales);
  }
  static MF_FN_MEMBER void place_grid(MF_T, u32) {}
  static MF_FN_MEMBER u32 words(MmaWalk) { return kWords; }
  MF_FN_MEMBER u32 tile_rows() const { return step; }
  MF_FN_MEMBER u32 format() const { return m.bits; }
  /// Says so of rows whatever the matrix says.
  MF_FN_MEMBER void has_wide_rows() { m.wide = 1u; }

  MF_FN_MEMBER u32 row_at(u32 tile, u32 r) const {
    const u32 row = tile * step + (r < kHalf ? r : r + step - kMmaRows);
    return row < m.rows ? row : m.rows - 1u;  // past the last row that one is multiplied again
  }

  /// A batch of copies.
  template <u32 KNOWN = kMmaAnyType>
  MF_FN_MEMBER void issue(MF_T t, u32 at, u32 tile, u32 split) const {
    const u32 first = split * kMmaSplit;
    m.wide != 0u ? copy_codes(t, at, tile, first) : read_codes(t, at, tile, first);
    copy_scales(t, at + kScales, tile, first);
  }
  MF_FN_MEMBER void copy_codes(MF_T t, u32 at, u32 tile, u32 first) const {
    const u32 row_bytes = cols / 8u * BITS;
    const u32 begin = first / 8u * BITS;
    const u32 piece = t.lane % kOwn * 16u;
    const u32 r = t.lane / kOwn;
    const u32 column = piece < row_bytes - begin ? begin + piece : begin;
    MF_SHARED(u32) to = MF_SHARED_AT(t, u32, (at + r * kRowWords) * 4u + piece);
    MF_UNROLL
    for (u32 i = 0u; i < kMmaRows; i += 32u / kOwn) {
      MF_GLOBAL(const u8) half = i < kHalf ? upper : lower;
      MF_GLOBAL(const u8)
      from = half + column + static_cast<u64>(row_at(tile, r + i)) * row_bytes;
      copy_async4(t, to + i * kRowWords, MF_CAST(const u32, from));
    }
  }
  /// For rows that begin anywhere.
  MF_FN_MEMBER void read_codes(MF_T t, u32 at, u32 tile, u32 first) const {
    const u32 row_words = cols / 32u * BITS;
    const u32 begin = first / 32u * BITS;
    const u32 left = row_words - begin;
    MF_SHARED(u32) to = MF_SHARED_AT(t, u32, at * 4u);
    MF_ROLLED
    for (u32 i = t.lane; i < kOwn * (4u * kMmaRows); i += 32u) {
      const u32 r = i / (kOwn * 4u);
      const u32 c = i % (kOwn * 4u);
      MF_GLOBAL(const u8) half = r < kHalf ? upper : lower;
      MF_GLOBAL(const u32) from = MF_CAST(const u32, half);
      to[r * kRowWords + c] =
          from[static_cast<u64>(row_at(tile, r)) * row_words + begin + (c < left ? c : 0u)];
    }
  }
  /// A row's scales of 8 blocks, two a word, then its biases: an even lane has the former.
  MF_FN_MEMBER void copy_scales(MF_T t, u32 at, u32 tile, u32 first) const {
    const u64 groups = static_cast<u64>(row_at(tile, t.lane / 2u)) * (cols >> m.group_shift);
    MF_SHARED(u32) to = MF_SHARED_AT(t, u32, (at + t.lane * (kMmaScaleWords / 2u)) * 4u);
    if (m.wide_scales != 0u) {
      copy_async4(t, to, MF_CAST(const u32, scales + (groups + first / kMmaBlock) * 2u));
      return;
    }
    const u32 last_block = cols / kMmaBlock - 1u;
    u32 pairs[kMmaSplitBlocks / 2u];  // all on their way together
    MF_UNROLL
    for (u32 i = 0u; i < kMmaSplitBlocks / 2u; ++i) {
      pairs[i] = load_scale_pair(m, scales, groups, first / kMmaBlock + 2u * i, last_block);
    }
    MF_UNROLL
    for (u32 i = 0u; i < kMmaSplitBlocks / 2u; ++i) to[i] = pairs[i];
  }

  /// Sums of integers in twos of blocks: for each the 256s and the ones of a row, then of the row 8
  /// further. `turned`: lanes take the 16 bytes of a block in different orders, against conflicts.
  MF_FN_MEMBER void add_codes(MF_T t, MF_LOCAL(i32) even, MF_LOCAL(i32) odd, MF_SHARED(u32) codes,
                              MF_SHARED(u32) x_bytes, u32 turned) const {
    MF_UNROLL
    for (u32 i = 0u; i < 8u; ++i) even[i] = odd[i] = 0;
    MF_UNROLL
    for (u32 j = 0u; j < 2u; ++j) {
      MF_UNROLL
      for (u32 u = 0u; u < kPieces; ++u) {
        const u32 piece = u ^ turned;
        const W4 above = load4(codes + (j * (2u * BITS) + piece * 4u));
        const W4 below = load4(codes + (kHalf * kRowWords + j * (2u * BITS) + piece * 4u));
        MF_UNROLL
        for (u32 o = 0u; o < kOctets; o += 2u) {
          const W4 x = load4(x_bytes + (j * kMmaBlockWords + (piece * kOctets + o) * 2u));
          const W2 a = MmaColumns<BITS>::even(above.v, o);
          const W2 b = MmaColumns<BITS>::even(below.v, o);
          matrix_multiply_add_bytes(t, even + j * 4u, a.v[0], b.v[0], a.v[1], b.v[1], x.v[0],
                                    x.v[1]);
          const W2 c = MmaColumns<BITS>::odd(above.v, o);
          const W2 d = MmaColumns<BITS>::odd(below.v, o);
          matrix_multiply_add_bytes(t, odd + j * 4u, c.v[0], d.v[0], c.v[1], d.v[1], x.v[2],
                                    x.v[3]);
        }
      }
    }
  }
  /// 256 high + low of sums like these.
  static MF_FN_MEMBER f32 product(MF_LOCAL(const i32) even, MF_LOCAL(const i32) odd, u32 at) {
    const i32 times = static_cast<i32>(MmaColumns<BITS>::kOdd);
    const i32 high = even[at] * times + odd[at];
    const i32 low = even[at + 1u] * times + odd[at + 1u];
    // Rounding comes before the division, which is exact.
    return static_cast<f32>(high * 256 + low) * (1.0f / static_cast<f32>(times));
  }

  /// Leaves 16 sums in `to`, of the activations of split `staged` of those in `shared`.
  ///
  /// The units multiply 16 rows with 8 columns at once, and four lanes have the codes of a row.
  /// Here each of them has blocks of its own, two in all: a pair of columns is the 256s and the
  /// ones of a block in the lane that has it, and zeros in the others. So the four lanes end up
  /// with the sums of a block each.
  MF_FN_MEMBER void multiply(MF_T t, u32 at, u32 staged, MmaOneShared shared,
                             MF_SHARED(f32) to) const {
    const u32 g = t.lane / 4u;
    const u32 own = t.lane & 3u;
    const u32 block = staged * kMmaSplitBlocks + own * 2u;
    const u32 bytes_at = shared.bytes_of(g, own, block);
    i32 even[8];
    i32 odd[8];
    add_codes(t, even, odd, MF_SHARED_AT(t, u32, (at + g * kRowWords + own * (4u * BITS)) * 4u),
              MF_SHARED_AT(t, u32, bytes_at * 4u), BITS == 4u ? own / 2u : own);
    // Scale and bias of the lane's two blocks, of both rows; sum and factor of the blocks.
    MF_SHARED(u32) words = MF_SHARED_AT(t, u32, (at + kScales + g * kMmaScaleWords + own) * 4u);
    const F4 sums = load4(MF_SHARED_AT(t, f32, (shared.sums + block * 2u) * 4u));
    MmaProducts parts;
    MF_UNROLL
    for (u32 r = 0u; r < 2u; ++r) {
      const u32 scale = words[r * kHalf * kMmaScaleWords];
      const u32 bias = words[r * kHalf * kMmaScaleWords + kMmaScaleWords / 2u];
      MF_UNROLL
      for (u32 j = 0u; j < 2u; ++j) {
        parts.v[r][j] =
            mma_block(product(even, odd, j * 4u + r * 2u), mma_scale(scale, j, m.scales),
                      mma_scale(bias, j, m.scales), sums.v[2u * j]);
      }
    }
    store_mma_rows(t, parts, sums.v[1], sums.v[3], to);
  }
};

}  // namespace kernels
}  // namespace gpu
}  // namespace moeflux
